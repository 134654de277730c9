"""Delays what the coordinator sends as the links of an emulated cluster would.

The stages of such a cluster delay what they send themselves (`engine/emulated_links.py`, by a
thread); here the event loop's timers do.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from runtime.coordinator.stage_link import Sender
from runtime.engine.emulated_link_queue import LinkQueue, queue_to
from runtime.protocol.data import Message
from runtime.protocol.emulation import EmulatedNetwork
from runtime.protocol.frame_error import FrameError
from runtime.transport.base import SendError

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class EmulatedSending:
    """Owns the emulated links from a coordinator to stages; the dispatcher sends by it.

    Implements `Sender` over `inner`. `call_at` runs a function at a time of `clock`, as an event
    loop's does.
    """

    inner: Sender
    network: EmulatedNetwork
    clock: Callable[[], float]
    call_at: Callable[[float, Callable[[], None]], object]
    _links: dict[str, LinkQueue] = field(init=False, default_factory=dict)
    # when a link is looked at next
    _due_s: dict[str, float] = field(init=False, default_factory=dict)

    def send(self, peer: str, message: Message) -> None:
        """Never raises: what cannot be sent is logged when it should arrive."""
        link = self._links.get(peer)
        if link is None:
            link = self._links[peer] = queue_to(peer, self.network)
        self._hand_on(peer, link)
        link.push(message, now_s=self.clock())
        self._hand_on(peer, link)

    def _hand_on(self, peer: str, link: LinkQueue) -> None:
        """What has arrived; and look again when something else does."""
        for message in link.advance(self.clock()):
            try:
                self.inner.send(peer, message)
            except (SendError, FrameError) as error:
                logger.error("cannot send to %s: %s", peer, error)
        next_s = link.next_s()
        if next_s is not None and next_s < self._due_s.get(peer, float("inf")):
            self._due_s[peer] = next_s
            self.call_at(next_s, lambda: self._due(peer, link, next_s))

    def _due(self, peer: str, link: LinkQueue, moment_s: float) -> None:
        if self._due_s.get(peer) == moment_s:
            del self._due_s[peer]
        self._hand_on(peer, link)


def emulated(transport: Sender, network: EmulatedNetwork) -> EmulatedSending:
    """Sends by `transport` as late as the links of `network` would, by the running event loop."""
    logger.warning("what is sent to the stages is delayed: their links are emulated")
    return EmulatedSending(
        transport, network, clock=time.monotonic, call_at=asyncio.get_running_loop().call_at
    )
