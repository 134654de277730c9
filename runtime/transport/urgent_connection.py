"""The socket of an urgent lane, which two threads use by turns.

The process's own thread sends on it at once; the thread of the lanes hears what is answered, which
nobody may wait for, and sends again what was lost.
"""

import contextlib
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import zmq

from runtime.protocol.link_frames import Ack, encode_link_frame
from runtime.transport.base import PeerStalled
from runtime.transport.receive_stream import Bytes
from runtime.transport.send_stream import Transmission
from runtime.transport.urgent_lane import UrgentLane
from runtime.transport.zmq_sockets import answers


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
        for ack in answers(self._dealer, Ack, peer=self.peer):
            for sending in self._lane.on_ack(
                ack, now_s=self._clock(), new_stream=lambda: secrets.randbits(32)
            ):
                n_bytes += self._put(sending)
                again += 1
        return Went(n_bytes=n_bytes, again=again)

    def _put(self, sending: Transmission) -> int:
        header, piece = encode_link_frame(sending.header), sending.piece
        self._send(header, piece.head, piece.part)
        return len(header) + piece.n_bytes

    def _send(self, *frames: Bytes) -> None:
        with contextlib.suppress(zmq.Again):  # missed by whoever should get it, it goes again
            self._dealer.send_multipart(frames, zmq.NOBLOCK, copy=False)
