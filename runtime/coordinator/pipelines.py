"""The pipelines of this process: a dispatcher, its HTTP endpoints and the loops that feed it."""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from runtime.coordinator.app import PipelineBackend
from runtime.coordinator.dispatcher import Dispatcher
from runtime.http_process import Ending
from runtime.transport.zmq_transport import AsyncZmqTransport

logger = logging.getLogger(__name__)

T = TypeVar("T")
TICK_S = 1.0


async def act_forever(
    arriving: Callable[[], Awaitable[Sequence[T]]],
    act: Callable[[T], None],
    *,
    peer_of: Callable[[T], str],
) -> None:
    """`arriving` waits until there is something.

    What cannot be acted on is logged and left out: it must not end the service for all others. What
    it makes other tasks do is done before more is taken, also where `arriving` never waits.
    """
    while True:
        for one in await arriving():
            try:
                act(one)
            except Exception:
                logger.exception("what came of %r could not be acted on", peer_of(one))
        await asyncio.sleep(0)


class Pipelines:
    """Owns the dispatcher's loops and endpoints; coordinators and whole-model servers use it.

    Stages send what `transport` receives.
    """

    def __init__(self, dispatcher: Dispatcher, transport: AsyncZmqTransport) -> None:
        self.dispatcher = dispatcher
        self._transport = transport
        self.backend = PipelineBackend(
            dispatcher=dispatcher,
            unix_time=time.time,
            new_answer_id=lambda: secrets.token_hex(12),
            new_seed=lambda: secrets.randbits(64),
        )

    def works(self) -> list[Coroutine[Any, Any, None]]:
        """What must run while requests are answered."""
        return [
            act_forever(
                self._transport.receive, self.dispatcher.receive, peer_of=attrgetter("sender")
            ),
            act_forever(
                self._transport.peer_events, self.dispatcher.see, peer_of=attrgetter("peer")
            ),
            self._expire(),
        ]

    def ending(self, *, grace_s: float) -> Ending:
        """Of a process that has nothing but these."""
        return Ending(
            requests=lambda: self.dispatcher.requests_here,
            close=self.dispatcher.close,
            cut=self.cut,
            grace_s=grace_s,
        )

    async def cut(self) -> None:
        """End every request; its client gets an error."""
        self.dispatcher.stop()

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.dispatcher.expire()
