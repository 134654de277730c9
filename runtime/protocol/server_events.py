"""Reads server-sent events (WHATWG HTML §9.2) from a stream of bytes; pure."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One event; `id` is that of the last event that had one, to go on from after a break."""

    event: str
    data: str
    id: str


class ServerEventReader:
    """Cuts a stream of bytes, in pieces of any size, into events; lines end in LF or CRLF.

    What is not ended by an empty line when the stream ends is no event.
    """

    def __init__(self, *, last_id: str = "") -> None:
        self._last_id = last_id
        self._buffered = b""
        self._event, self._data = "", list[str]()

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """The events that end within `chunk`."""
        *lines, self._buffered = (self._buffered + chunk).split(b"\n")
        for line in lines:
            text = line.removesuffix(b"\r").decode(errors="replace")
            if not text:
                if self._data:
                    yield ServerEvent(
                        event=self._event or "message",
                        data="\n".join(self._data),
                        id=self._last_id,
                    )
                self._event, self._data = "", []
                continue
            name, _, value = text.partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                self._event = value
            elif name == "data":
                self._data.append(value)
            elif name == "id":
                self._last_id = value
