"""Reads server-sent events (WHATWG HTML §9.2) from a stream of bytes."""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One event; `id` is that of the last event that had one, to go on from after a break."""

    event: str
    data: str
    id: str


async def parse_events(
    chunks: AsyncIterator[bytes], *, last_id: str = ""
) -> AsyncGenerator[ServerEvent]:
    """The events in `chunks`, which may be cut anywhere; lines end in LF or CRLF.

    What is not ended by an empty line when the stream ends is no event.
    """
    buffered = b""
    event, data = "", list[str]()
    async for chunk in chunks:
        *lines, buffered = (buffered + chunk).split(b"\n")
        for line in lines:
            text = line.removesuffix(b"\r").decode(errors="replace")
            if not text:
                if data:
                    yield ServerEvent(event=event or "message", data="\n".join(data), id=last_id)
                event, data = "", []
                continue
            name, _, value = text.partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                event = value
            elif name == "data":
                data.append(value)
            elif name == "id":
                last_id = value
