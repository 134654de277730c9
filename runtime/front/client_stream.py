"""What a client is answered, and what is sent to it while an instance sends nothing."""

import json
from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import Scope, Send

from runtime.api.error_answers import error_response
from runtime.api.events import DONE, WAITING, stream_part, stream_start
from runtime.disconnect import no_more
from runtime.protocol.openai import ApiError

INSTANCE_HEADER = "x-helix-instance"


class ClientStream:
    """What a client is answered: a whole response, or an event stream once there is something to
    send. `Answer` makes one for each request."""

    def __init__(self, scope: Scope, send: Send, passed_on: Mapping[str, str]) -> None:
        """`passed_on`: headers of the instance that answers, read when the stream begins."""
        self._scope = scope
        self._send = send
        self._passed_on = passed_on
        self.is_open = False
        self.has_tokens = False
        self.is_ended = False

    async def respond(self, response: Response) -> None:
        """The whole answer."""
        self.is_ended = True
        await response(self._scope, no_more, self._send)

    async def fail(self, error: ApiError, response: Response | None = None) -> None:
        """End with `response`, by default that of the error; in a stream with its event."""
        if self.is_open:
            event = json.dumps(error.body()).encode()
            await self._write(b"data: " + event + b"\n\n" + DONE, more=False)
        else:
            await self.respond(response or error_response(error))

    async def send(self, instance: str, content: bytes, *, is_last: bool) -> None:
        """Events of an instance, the first token or after it."""
        await self._open(instance)
        self.has_tokens = True
        await self._write(content, more=not is_last)

    async def live(self, instance: str | None) -> None:
        """Send a comment, which clients skip, as nothing was sent for a while.

        `instance` None: none has the request yet.
        """
        await self._open(instance)
        await self._write(WAITING, more=True)

    async def _open(self, instance: str | None) -> None:
        if self.is_open:
            return
        self.is_open = True
        named = {} if instance is None else {INSTANCE_HEADER: instance}
        await self._send(stream_start({**named, **self._passed_on}))

    async def _write(self, content: bytes, *, more: bool) -> None:
        self.is_ended = not more
        await self._send(stream_part(content, is_last=not more))
