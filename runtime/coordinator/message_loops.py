"""Give the dispatcher what its transport receives, for as long as the process lives."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


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
