"""The thread that watches peers: whether their processes run, answer and make progress.

Each peer has a connection for heartbeats alone, so that no prompt delays them. A process that ended
is found sooner: its kernel closes the connection, and a second one is refused
(`port_check`). One broken connection proves nothing, so the check is repeated, with growing pauses,
until the connection is back or the check is refused.

A stage whose link to the next one is cut is in good health, and so is the other: neither would be
missed, while what one sends the other is lost. So a stage watches whom it sends to, and tells its
coordinators whom it cannot reach: at once, and then every second, as a message may be lost, too.
"""

import contextlib
import logging
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from runtime.protocol.control import PeerAddress
from runtime.protocol.coordinators import is_coordinator
from runtime.protocol.data import Kind, Message, encode
from runtime.protocol.endpoints import parse_endpoint
from runtime.protocol.link_frames import Echo, encode_link_frame
from runtime.transport.heartbeats import BEAT_INTERVAL_S, Heartbeats, Loss, PeerEvent
from runtime.transport.port_check import listens
from runtime.transport.wakeup import PollingThread, Wakeup
from runtime.transport.zmq_sockets import answers

logger = logging.getLogger(__name__)

_ROUNDED_UP_S = 1e-3  # what polls for whole milliseconds wakes early
_LATE_S = 0.1  # a turn of ours that comes later tells nothing of others
_CHECK_TIMEOUT_S = 1.0
_CHECKS_AT_ONCE = 32  # each waits in a thread for its answer
_CHECK_PAUSES_S = (0.05, 2.0)  # the first after so long, each after twice as long, up to
_COORDINATOR_BEAT_S = 1.0  # one may be watched by a thousand stages
_TELLS_EVERY_S = 1.0
_PEERS_AT_FULL_RATE = 200  # with more, each is beaten at more rarely: a beat costs some 60 us


class _Watched:
    """One peer, and the sockets that are for it."""

    def __init__(self, peer: str, address: PeerAddress, dealer: Any) -> None:
        self.peer = peer
        self.address = address
        self.dealer = dealer
        self.monitor = dealer.get_monitor_socket(
            zmq.EVENT_CONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        )
        dealer.connect(address.endpoint)  # only now: what the monitor does not see is never told
        self.heartbeats = Heartbeats()
        self.target = _numeric(address.endpoint)
        self.check: Future[bool | None] | None = None
        self.interval_s = _COORDINATOR_BEAT_S if is_coordinator(peer) else BEAT_INTERVAL_S
        self.beat_s = 0.0  # when the next beat is due
        self.is_broken = False  # the connection, and was not made again
        self.next_check_s = 0.0
        self.check_pause_s = _CHECK_PAUSES_S[1]

    def close(self) -> None:
        self.dealer.disable_monitor()
        self.monitor.close(linger=0)
        self.dealer.close(linger=0)


class HeartbeatMonitor(PollingThread):
    """Owned by a transport; the one that asks whether peers live.

    `socket_for` makes a socket to beat on, not connected yet; it is connected here. `wakeup` is
    readable while there is news to `take`. A stage has a `generation`: coordinators are told which
    stages it cannot reach, and `take` has news of coordinators only.
    """

    def __init__(
        self,
        *,
        socket_for: Callable[[PeerAddress], Any],
        generation: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("watch")
        self.wakeup = Wakeup()
        self._socket_for = socket_for
        self._generation = generation
        self._clock = clock
        # under the lock
        self._wanted: dict[str, PeerAddress] = {}
        self._news: list[PeerEvent] = []
        # of this thread alone
        self._watched: dict[str, _Watched] = {}
        self._checks = ThreadPoolExecutor(_CHECKS_AT_ONCE, thread_name_prefix="port check")
        self._due_s = clock()
        self._lost: set[str] = set()  # stages; told from the first loss on
        self._tell_s = float("inf")  # when of those that are lost
        self._thread.start()

    def follow(self, peers: Mapping[str, PeerAddress]) -> None:
        """HeartbeatMonitor exactly these from now on; one that moved is another."""
        with self._lock:
            self._wanted = dict(peers)
        self._wakeup.wake()

    def take(self) -> list[PeerEvent]:
        """The news, oldest first."""
        self.wakeup.clear()
        with self._lock:
            news, self._news = self._news, []
        return news

    def close(self) -> None:
        super().close()
        self.wakeup.close()

    def _release(self) -> None:
        self._checks.shutdown(cancel_futures=True)  # their callbacks wake this thread
        for watched in self._watched.values():
            watched.close()

    def _turn(self) -> None:
        """Wait for something and do all there is."""
        checks = (w.next_check_s for w in self._watched.values() if w.is_broken and not w.check)
        wake_s = min((self._due_s, self._tell_s, *checks))
        readable = self._poll(max(0.0, wake_s - self._clock()) + _ROUNDED_UP_S)
        for watched in self._watched.values():
            if watched.dealer in readable:
                self._hear(watched)
            if watched.monitor in readable:
                self._look(watched)
            self._check_port(watched)
        now_s = self._clock()
        late_s = now_s - self._due_s
        if late_s >= 0:
            crowd = max(1.0, len(self._watched) / _PEERS_AT_FULL_RATE)
            for watched in self._watched.values():
                if late_s > _LATE_S:
                    watched.heartbeats.skip(late_s)
                if now_s >= watched.beat_s:
                    watched.beat_s = now_s + watched.interval_s * crowd
                    self._beat(watched)
            dues = (watched.beat_s for watched in self._watched.values())
            self._due_s = min(dues, default=now_s + BEAT_INTERVAL_S)
        for watched in self._watched.values():
            if watched.heartbeats.loss is None:
                watched.heartbeats.judge(now_s=now_s)
                if watched.heartbeats.loss is not None:
                    self._tell(watched, silent_s=watched.heartbeats.silent_s(now_s=now_s))
        with self._lock:
            wanted = self._wanted
        if not self._closing:
            self._follow(wanted)
            self._tell_lost_links()

    def _follow(self, wanted: Mapping[str, PeerAddress]) -> None:
        for peer, watched in list(self._watched.items()):
            if wanted.get(peer) != watched.address:
                self._poller.unregister(watched.dealer)
                self._poller.unregister(watched.monitor)
                self._watched.pop(peer).close()
                self._forget_link(peer)
        for peer, address in wanted.items():
            if peer not in self._watched:
                watched = _Watched(peer, address, self._socket_for(address))
                self._poller.register(watched.dealer, zmq.POLLIN)
                self._poller.register(watched.monitor, zmq.POLLIN)
                self._watched[peer] = watched
                self._due_s = self._clock()
                self._hurry_telling()

    def _beat(self, watched: _Watched) -> None:
        frame = encode_link_frame(watched.heartbeats.beat(now_s=self._clock()))
        with contextlib.suppress(zmq.Again):  # as good as lost: it will be missed
            watched.dealer.send(frame, zmq.NOBLOCK)

    def _hear(self, watched: _Watched) -> None:
        for echo in answers(watched.dealer, Echo, peer=watched.peer):
            now_s = self._clock()
            before, silent_s = watched.heartbeats.loss, watched.heartbeats.silent_s(now_s=now_s)
            if watched.heartbeats.hear(echo, now_s=now_s) or watched.heartbeats.loss is not before:
                self._tell(watched, silent_s=silent_s)

    def _look(self, watched: _Watched) -> None:
        """Act on what became of the connection."""
        while watched.monitor.poll(0):
            event = recv_monitor_message(watched.monitor, zmq.NOBLOCK)
            if event["event"] == zmq.EVENT_CONNECTED:
                found = _numeric(watched.address.endpoint) or _other_end(event["value"])
                watched.target = found or watched.target
            elif event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                watched.is_broken = False
                self._beat(watched)
            elif watched.target is not None:
                watched.check = None
                watched.is_broken = True
                watched.next_check_s, watched.check_pause_s = self._clock(), _CHECK_PAUSES_S[0]

    def _check_port(self, watched: _Watched) -> None:
        """Check the port while the connection is broken or heartbeats are unanswered."""
        now_s = self._clock()
        is_doubtful = watched.is_broken or watched.heartbeats.loss is Loss.SILENT
        if not is_doubtful or watched.target is None:
            watched.check = None
            return
        if watched.check is None and now_s >= watched.next_check_s:
            watched.check = self._checks.submit(listens, watched.target, within_s=_CHECK_TIMEOUT_S)
            watched.check.add_done_callback(lambda _: self._wakeup.wake())
        if watched.check is None or not watched.check.done():
            return
        is_gone = watched.check.result() is False
        watched.check = None
        watched.next_check_s = now_s + watched.check_pause_s
        watched.check_pause_s = min(2 * watched.check_pause_s, _CHECK_PAUSES_S[1])
        if is_gone:
            watched.is_broken = False  # the next connection is another process's
            if watched.heartbeats.end():
                self._tell(watched, silent_s=watched.heartbeats.silent_s(now_s=now_s))

    def _tell(self, watched: _Watched, *, silent_s: float) -> None:
        if self._generation is not None and not is_coordinator(watched.peer):
            self._note_link(watched.peer, watched.heartbeats.loss)
            return
        news = PeerEvent(peer=watched.peer, loss=watched.heartbeats.loss, silent_s=silent_s)
        with self._lock:
            self._news.append(news)
        self.wakeup.wake()

    def _note_link(self, peer: str, loss: Loss | None) -> None:
        if loss is None:
            if peer in self._lost:
                logger.warning("reached %r again", peer)
            self._forget_link(peer)
        else:
            logger.warning("cannot reach %r: %s", peer, loss)
            self._lost.add(peer)
            self._tell_s = float("-inf")

    def _forget_link(self, peer: str) -> None:
        self._lost.discard(peer)
        self._hurry_telling()

    def _hurry_telling(self) -> None:
        if self._tell_s < float("inf"):
            self._tell_s = float("-inf")

    def _tell_lost_links(self) -> None:
        now_s = self._clock()
        if self._generation is None or now_s < self._tell_s:
            return
        self._tell_s = now_s + _TELLS_EVERY_S
        lost = tuple(sorted(self._lost))
        frames = encode(Message(kind=Kind.LOST_LINKS, generation=self._generation, lost_links=lost))
        for watched in self._watched.values():
            if is_coordinator(watched.peer):
                with contextlib.suppress(zmq.Again):  # it is told again in a second
                    watched.dealer.send_multipart(frames, zmq.NOBLOCK)


def _numeric(endpoint: str) -> tuple[str, int] | None:
    """Where `endpoint` leads if it says so without a name; None: that is known once connected."""
    place = parse_endpoint(endpoint)
    return None if place.address is None else (str(place.address), place.port)


def _other_end(fd: int) -> tuple[str, int] | None:
    """Where the connection `fd` of libzmq's leads to; None if it is closed by now."""
    try:
        with socket.fromfd(fd, socket.AF_INET, socket.SOCK_STREAM) as copy:
            host, port = copy.getpeername()[:2]
    except OSError:
        return None
    return host, port
