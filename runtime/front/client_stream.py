"""What a client is answered: a stream, its comments while an instance sends nothing, errors."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from starlette.responses import Response
from starlette.types import Scope, Send

from runtime.api.error_answers import error_response
from runtime.api.events import DONE, WAITING, stream_part, stream_start
from runtime.disconnect import no_more
from runtime.front.target import InstanceFailed, Refused, TooSlow
from runtime.protocol.openai import ApiError

INSTANCE_HEADER = "x-helix-instance"
RETRY_AFTER_S = 2.0
_START_RETRY_S = 10.0  # where nothing is known of how long a start takes
_LONGEST_RETRY_S = 600.0


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


def passed_on(refusal: Refused, instance: str) -> Response:
    return Response(
        refusal.content,
        status_code=refusal.status,
        media_type=refusal.media_type,
        headers={INSTANCE_HEADER: instance},
    )


def stopping() -> ApiError:
    return ApiError(
        message="the front is stopping; try again", code="stopping", retry_after_s=RETRY_AFTER_S
    )


def all_full(told: str, *, retry_after_s: float = RETRY_AFTER_S) -> ApiError:
    return ApiError(
        message=f"all instances are full ({told}); try again later",
        code="queue_full",
        retry_after_s=retry_after_s,
    )


def none_ready(states: Mapping[str, str], *, opens_in_s: float | None) -> ApiError:
    """`states`: how each instance is. `opens_in_s`: when one is expected, if that is known."""
    again_s = _START_RETRY_S if opens_in_s is None else opens_in_s
    again_s = min(_LONGEST_RETRY_S, max(RETRY_AFTER_S, again_s))
    told = "; ".join(f"{name}: {words}" for name, words in states.items())
    return ApiError(
        message=f"no instance is ready ({told}); try again in {again_s:.0f} s",
        code="not_ready",
        retry_after_s=again_s,
    )


def too_slow(instance: str, error: TooSlow) -> ApiError:
    return ApiError(message=f"instance {instance}: {error}, or for a stream", code="too_slow")


def broken(instance: str, error: Exception) -> ApiError:
    return ApiError(
        message=f"instance {instance} broke off: {error}; what was written so far stands, ask "
        "again for the rest",
        code="stream_broken",
    )


def refused_late(refusal: Refused) -> ApiError:
    return ApiError(
        status=refusal.status,
        message=f"the request was refused: {refusal.content[:300].decode(errors='replace')}",
        code="refused",
    )


class Lateness:
    """Decides whether a stream's next token is late; its answer asks it.

    Of one stream. Comments say that a server lives, not that it writes: before the first token
    they are believed for `first_s`, after it for `next_s`.
    """

    def __init__(self, *, first_s: float, next_s: float, clock: Callable[[], float]) -> None:
        self._patience_s, self._next_s = first_s, next_s
        self._clock = clock
        self._since_s = clock()

    def has_written(self) -> None:
        """A token came."""
        self._patience_s, self._since_s = self._next_s, self._clock()

    def check(self) -> None:
        """Raises InstanceFailed where the next token is late."""
        if self._clock() - self._since_s > self._patience_s:
            raise InstanceFailed(
                f"it sent no token for {self._patience_s:g} s, though its stream went on"
            )

    @contextmanager
    def waiting_for_client(self) -> Iterator[None]:
        """Within, time passes that is not the instance's."""
        began_s = self._clock()
        try:
            yield
        finally:
            self._since_s += self._clock() - began_s
