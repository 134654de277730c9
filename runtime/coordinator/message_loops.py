"""Give the dispatcher what its transport receives, for as long as the process lives.

A message that cannot be acted on is logged and left out: it must not end the service for all
others.
"""

import logging
from collections.abc import Awaitable, Sequence
from typing import Protocol

from runtime.coordinator.dispatcher import Dispatcher
from runtime.transport.base import Received
from runtime.transport.pulse import Sighting

logger = logging.getLogger(__name__)


class Incoming(Protocol):
    """What the loops need of a transport; both wait until there is something."""

    def receive(self) -> Awaitable[Sequence[Received]]: ...

    def sightings(self) -> Awaitable[Sequence[Sighting]]: ...


async def receive_forever(transport: Incoming, dispatcher: Dispatcher) -> None:
    """Messages of stages."""
    while True:
        for received in await transport.receive():
            try:
                dispatcher.receive(received)
            except Exception:
                logger.exception("a message of %r could not be acted on", received.sender)


async def see_forever(transport: Incoming, dispatcher: Dispatcher) -> None:
    """News of which processes live."""
    while True:
        for sighting in await transport.sightings():
            try:
                dispatcher.see(sighting)
            except Exception:
                logger.exception("news of %r could not be acted on", sighting.peer)
