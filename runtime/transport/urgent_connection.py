"""The socket of an urgent lane, which two threads use by turns.

The process's own thread sends on it at once; the thread of the lanes hears what is answered, which
nobody may wait for, and sends again what was lost.
"""

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import zmq

from runtime.protocol.link_frames import Ack, encode_link_frame
from runtime.transport.base import PeerStalled
from runtime.transport.receive_stream import Bytes
from runtime.transport.send_stream import Transmission
from runtime.transport.urgent_lane import UrgentLane
from runtime.transport.zmq_sockets import answers


class UrgentConnection:
    """Owns the socket of one link's urgent lane; the lanes' and the sender's thread call it.

    `dealer` is handed over; `fd` is readable when there may be something to hear. `on_sent` is
    called with the bytes of each message, and whether it went again.
    """

    def __init__(
        self,
        peer: str,
        dealer: Any,
        *,
        most_kept: int,
        on_sent: Callable[[int, bool], None],
        clock: Callable[[], float],
    ) -> None:
        self.peer = peer
        self.fd: int = dealer.getsockopt(zmq.FD)
        self._dealer = dealer
        self._on_sent = on_sent
        self._clock = clock
        self._lock = threading.Lock()  # of dealer and lane
        self._lane = UrgentLane(most_kept=most_kept)

    def send(self, head: bytes, payload: Bytes) -> None:
        """Never blocks. Raises PeerStalled."""
        with self._lock:
            if self._lane.is_full:
                raise PeerStalled(f"{self._lane.most_kept} messages wait for {self.peer!r} already")
            self._put(self._lane.number(head, payload, now_s=self._clock()), is_again=False)
            # whatever a socket is used for, it may tell of what came, and only once
            self._hear_all()

    def tend(self) -> None:
        """Hear what was answered, or ask if nothing is."""
        with self._lock:
            probe = self._lane.probe(now_s=self._clock())
            if probe is not None:
                self._send(encode_link_frame(probe))
            self._hear_all()

    @property
    def probe_s(self) -> float:
        """When to tend it at the latest."""
        return self._lane.probe_s

    def close(self) -> None:
        self._dealer.close(linger=0)

    def _hear_all(self) -> None:
        for ack in answers(self._dealer, Ack, peer=self.peer):
            for sending in self._lane.on_ack(ack, now_s=self._clock()):
                self._put(sending, is_again=True)

    def _put(self, sending: Transmission, *, is_again: bool) -> None:
        header, piece = encode_link_frame(sending.header), sending.piece
        self._send(header, piece.head, piece.part)
        self._on_sent(len(header) + piece.n_bytes, is_again)

    def _send(self, *frames: Bytes) -> None:
        with contextlib.suppress(zmq.Again):  # missed by whoever should get it, it goes again
            self._dealer.send_multipart(frames, zmq.NOBLOCK, copy=False)
