"""The pipelines of this process: a dispatcher, its HTTP endpoints and what keeps it going."""

import asyncio
import secrets
import time
from collections.abc import Coroutine
from operator import attrgetter
from typing import Any

from runtime.coordinator.app import PipelineBackend
from runtime.coordinator.dispatcher import Dispatcher
from runtime.coordinator.message_loops import act_forever
from runtime.http_process import Ending
from runtime.transport.async_zmq_transport import AsyncZmqTransport

TICK_S = 1.0


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
