"""The socket of an urgent lane, which two threads use by turns.

The process's own thread sends on it at once; the thread of the lanes hears what is answered, which
nobody may wait for, and sends again what was lost.
"""

import contextlib
import logging
import secrets
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import zmq

from runtime.protocol.data import FrameError
from runtime.protocol.link_frames import Ack, decode_link_frame, encode_link_frame
from runtime.transport.base import PeerStalled
from runtime.transport.reassembly import Bytes
from runtime.transport.urgent_lane import Numbered, UrgentLane

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Went:
    """What was sent just now: bytes, of first and second times, and messages that went again."""

    n_bytes: int
    again: int


class UrgentConnection:
    """Owns the socket of one link's urgent lane; the lanes' and the sender's thread call it.

    `dealer` is handed over; `fd` is readable when there may be something to hear.
    """

    def __init__(
        self, peer: str, dealer: Any, *, most_kept: int, clock: Callable[[], float]
    ) -> None:
        self.peer = peer
        self.fd: int = dealer.getsockopt(zmq.FD)
        self._dealer = dealer
        self._clock = clock
        self._lock = threading.Lock()  # of dealer and lane
        self._lane = UrgentLane(stream=secrets.randbits(32), most_kept=most_kept)

    def send(self, head: bytes, payload: Bytes) -> Went:
        """Never blocks. Raises PeerStalled."""
        with self._lock:
            if self._lane.is_full:
                raise PeerStalled(f"{self._lane.most_kept} messages wait for {self.peer!r} already")
            n_bytes = self._put(self._lane.number(head, payload, now_s=self._clock()))
            # whatever a socket is used for, it may tell of what came, and only once
            again = self._hear_all()
            return Went(n_bytes=n_bytes + again.n_bytes, again=again.again)

    def tend(self) -> Went:
        """Hear what was answered, or ask if nothing is."""
        with self._lock:
            probe = self._lane.probe(now_s=self._clock())
            if probe is not None:
                self._send(encode_link_frame(probe))
            return self._hear_all()

    @property
    def probe_s(self) -> float:
        """When to tend it at the latest."""
        return self._lane.probe_s

    def close(self) -> None:
        self._dealer.close(linger=0)

    def _hear_all(self) -> Went:
        n_bytes = again = 0
        while self._dealer.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            for numbered in self._answered(self._dealer.recv_multipart(zmq.NOBLOCK)):
                n_bytes += self._put(numbered)
                again += 1
        return Went(n_bytes=n_bytes, again=again)

    def _answered(self, frames: list[bytes]) -> Iterable[Numbered]:
        """What is to go again."""
        try:
            ack = decode_link_frame(frames[0])
            if not isinstance(ack, Ack):
                raise FrameError("only acks come back on an urgent lane")
        except FrameError as error:
            logger.warning("dropped what %s answered: %s", self.peer, error)
            return ()
        return self._lane.on_ack(ack, now_s=self._clock(), new_stream=lambda: secrets.randbits(32))

    def _put(self, numbered: Numbered) -> int:
        header = encode_link_frame(numbered.urgent)
        self._send(header, numbered.head, numbered.payload)
        return len(header) + numbered.n_bytes

    def _send(self, *frames: Bytes) -> None:
        with contextlib.suppress(zmq.Again):  # missed by whoever should get it, it goes again
            self._dealer.send_multipart(frames, zmq.NOBLOCK, copy=False)
