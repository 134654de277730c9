"""The event stream to a client, and what is said in it while an instance says nothing."""

import json
from collections.abc import Mapping

from starlette.types import Send

from runtime.api.events import DONE, WAITING, stream_part, stream_start
from runtime.protocol.openai import ApiError

INSTANCE_HEADER = "x-helix-instance"


class ClientStream:
    """The event stream to the client, begun when there is something to say."""

    def __init__(self, send: Send, passed_on: Mapping[str, str]) -> None:
        """`passed_on`: headers of the instance that answers, read when the stream begins."""
        self._send = send
        self._passed_on = passed_on
        self.is_open = False
        self.has_tokens = False
        self.is_ended = False

    async def send(self, instance: str, content: bytes, *, is_last: bool) -> None:
        """Events of an instance, the first token or after it."""
        await self._open(instance)
        self.has_tokens = True
        await self._write(content, more=not is_last)

    async def live(self, instance: str | None) -> None:
        """Nothing was said for a while; a comment, which clients skip, says that more will be.

        `instance` None: none has the request yet.
        """
        await self._open(instance)
        await self._write(WAITING, more=True)

    async def fail(self, error: ApiError) -> None:
        """End it; the status was told long ago."""
        event = json.dumps(error.body()).encode()
        await self._write(b"data: " + event + b"\n\n" + DONE, more=False)

    async def _open(self, instance: str | None) -> None:
        if self.is_open:
            return
        self.is_open = True
        named = {} if instance is None else {INSTANCE_HEADER: instance}
        await self._send(stream_start({**named, **self._passed_on}))

    async def _write(self, content: bytes, *, more: bool) -> None:
        self.is_ended = not more
        await self._send(stream_part(content, is_last=not more))
