"""The loops of a process with pipelines: stages' messages and states go to its dispatcher."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from runtime.coordinator.dispatcher import Dispatcher
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


def message_loops(
    dispatcher: Dispatcher, transport: AsyncZmqTransport
) -> list[Coroutine[Any, Any, None]]:
    """What must run while `dispatcher` has requests of stages that `transport` reaches."""
    return [
        act_forever(transport.receive, dispatcher.receive, peer_of=attrgetter("sender")),
        act_forever(transport.peer_events, dispatcher.see, peer_of=attrgetter("peer")),
        act_forever(each_second, lambda _: dispatcher.expire(), peer_of=str),
    ]


async def each_second() -> tuple[str]:
    """The clock, once a second has passed."""
    await asyncio.sleep(TICK_S)
    return ("the clock",)
