"""The thread that tells coordinators which peers this process sends to and cannot reach.

A stage whose link to the next one is cut is in good health, and so is the other: neither would be
missed, while what one sends the other is lost. Who sends watches, and whoever routes is told: at
once, and then once a second, since that message may be lost as well.
"""

import contextlib
import logging
import select
import threading
from collections.abc import Callable, Iterable
from typing import Any

import zmq

from runtime.protocol.control import PeerAddress
from runtime.protocol.data import encode
from runtime.protocol.lost_links import lost_links_message
from runtime.transport.wakeup import Wakeup
from runtime.transport.watch import Watch

logger = logging.getLogger(__name__)

_AGAIN_S = 1.0


class LostLinks:
    """`address_of` knows peers by name; `dial` makes the socket that a coordinator is told on."""

    def __init__(
        self,
        *,
        watch: Watch,
        address_of: Callable[[str], PeerAddress | None],
        dial: Callable[[PeerAddress], Any],
        generation: int,
    ) -> None:
        self._watch = watch
        self._address_of = address_of
        self._dial = dial
        self._generation = generation
        self._used: dict[str, PeerAddress] = {}
        self._told: frozenset[PeerAddress] = frozenset()  # replaced whole, read by the thread
        self._closing = False
        self._wakeup = Wakeup()
        self._thread = threading.Thread(
            target=self._tell_until_closed, name="lost links", daemon=True
        )
        self._thread.start()

    def tell(self, coordinators: Iterable[PeerAddress]) -> None:
        """Tell exactly these from now on."""
        self._told = frozenset(coordinators)
        self._wakeup.wake()

    def use(self, peer: str) -> None:
        """Something is sent to `peer`: watch it. Called by one thread."""
        if peer in self._used:
            return
        address = self._address_of(peer)
        if address is not None:
            self._used[peer] = address
            self._watch.follow(self._used)

    def drop(self, peer: str) -> None:
        """It has left or moved: what was found out says nothing any more. Called by one thread."""
        if self._used.pop(peer, None) is not None:
            self._watch.follow(self._used)

    def close(self) -> None:
        """End the thread and its socket; the watch is its owner's to close."""
        self._closing = True
        self._wakeup.wake()
        self._thread.join()
        self._wakeup.close()

    def _tell_until_closed(self) -> None:
        dealers: dict[PeerAddress, Any] = {}
        lost: set[str] = set()
        tells = False  # from the first loss on
        poller = select.poll()
        poller.register(self._wakeup.fd, select.POLLIN)
        poller.register(self._watch.wakeup.fd, select.POLLIN)
        try:
            while not self._closing:
                poller.poll(_AGAIN_S * 1000 if tells else None)
                self._wakeup.clear()
                told = self._told
                for address in dealers.keys() - told:
                    dealers.pop(address).close(linger=0)
                for address in told - dealers.keys():
                    dealers[address] = self._dial(address)
                for news in self._watch.take():
                    if news.loss is None:
                        if news.peer in lost:
                            logger.warning("reached %r again", news.peer)
                        lost.discard(news.peer)
                    else:
                        logger.warning("cannot reach %r: %s", news.peer, news.loss)
                        lost.add(news.peer)
                        tells = True
                lost.intersection_update(self._used)
                if tells:
                    message = lost_links_message(lost, generation=self._generation)
                    for dealer in dealers.values():
                        with contextlib.suppress(zmq.Again):  # said again in a second
                            dealer.send_multipart(encode(message), zmq.NOBLOCK)
        finally:
            for dealer in dealers.values():
                dealer.close(linger=0)
