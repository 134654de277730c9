"""Delays what a stage or the coordinator sends as the links of its emulated node would.

One thread owns all sending: a message leaves when its link has transmitted what went before it, and
is handed on when its last byte would arrive. The bytes counted are those of the emulated model.
"""

import logging
import threading
import time

from runtime.engine.emulated_link_queue import LinkQueue
from runtime.protocol.data import FrameError, Message
from runtime.protocol.emulation import EmulatedNetwork
from runtime.transport.base import Received, Sender, SendError, Transport

logger = logging.getLogger(__name__)

_CLOSE_PATIENCE_S = 2.0


class EmulatedSending:
    """Owns the emulated links from a process to stages, which sends by it as by `inner`."""

    def __init__(self, inner: Sender, network: EmulatedNetwork) -> None:
        self._inner = inner
        self._network = network
        self._links: dict[str, LinkQueue] = {}
        self._condition = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._send_all, name="emulated-links", daemon=True)
        self._thread.start()

    def send(self, peer: str, message: Message) -> None:
        """Never raises: what cannot be sent is logged when it should arrive."""
        with self._condition:
            queue = self._links.get(peer)
            if queue is None:
                queue = self._links[peer] = LinkQueue(peer, self._network)
            queue.push(message, now_s=time.monotonic())
            self._condition.notify()

    def close(self) -> None:
        """What is still under way is lost."""
        with self._condition:
            self._closed = True
            self._condition.notify()
        self._thread.join(_CLOSE_PATIENCE_S)
        self._inner.close()

    def _send_all(self) -> None:
        while (arrived := self._wait()) is not None:
            for peer, message in arrived:
                try:
                    self._inner.send(peer, message)
                except (SendError, FrameError) as error:
                    logger.error("cannot send to %s: %s", peer, error)

    def _wait(self) -> list[tuple[str, Message]] | None:
        """What arrives next, once it does; None when closed."""
        with self._condition:
            while not self._closed:
                now_s = time.monotonic()
                arrived = [
                    (peer, message)
                    for peer, queue in self._links.items()
                    for message in queue.advance(now_s)
                ]
                if arrived:
                    return arrived
                moments = [queue.next_s() for queue in self._links.values()]
                next_s = min((moment for moment in moments if moment is not None), default=None)
                self._condition.wait(
                    None if next_s is None else max(0.0, next_s - time.monotonic())
                )
            return None


class EmulatedLinks(EmulatedSending):
    """The transport of an emulated stage, as late as its links would be.

    Implements `Transport` over `inner`, whose receiving half is used as it is.
    """

    def __init__(self, inner: Transport, network: EmulatedNetwork) -> None:
        super().__init__(inner, network)
        self._receiving = inner

    def receive(self, *, timeout_s: float) -> list[Received]:
        return self._receiving.receive(timeout_s=timeout_s)
