"""The thread that receives everything and sends the bulk lanes of all links of this process.

Acks must go out and chunks must leave on time while the process's own thread computes; decodes are
sent by that thread itself and never wait for this one, which only sees to what was lost of them.
"""

import logging
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Any

import zmq

from runtime.protocol.control import LinkStats
from runtime.protocol.data import FrameError, MeasureOrder, Message, decode, encode
from runtime.protocol.endpoints import parse_endpoint
from runtime.protocol.link_frames import (
    Ack,
    Beat,
    Chunk,
    Echo,
    LinkFrame,
    Probe,
    Urgent,
    ack_of,
    decode_link_frame,
    encode_link_frame,
    is_link_frame,
)
from runtime.transport.base import PeerStalled, Received
from runtime.transport.kernel_link import KernelLink
from runtime.transport.link_scheduler import LinkOptions, LinkRule, LinkScheduler
from runtime.transport.measuring import FILLER_HEAD, Measuring
from runtime.transport.receive_stream import MAX_PAYLOAD_BYTES, Bytes, ReceiveStreams
from runtime.transport.turns import Turns
from runtime.transport.urgent_connection import UrgentConnection
from runtime.transport.wakeup import PollingThread, Wakeup
from runtime.transport.zmq_sockets import Peers, answers

logger = logging.getLogger(__name__)

# Messages and bytes received that may wait for the process; beyond, peers have to wait.
MAX_INBOX_MESSAGES = 10_000
MAX_INBOX_BYTES = 2**29
_RECEIVED_AT_ONCE = 100
_LONGEST_WAIT_S = 1.0


Dialled = tuple[Any, str]  # a DEALER, and the endpoint that it is to be connected to


class _Link:
    """What this thread knows of one peer it sends to."""

    def __init__(
        self, peer: str, scheduler: LinkScheduler, bulk: Dialled, urgent: UrgentConnection
    ) -> None:
        self.peer = peer
        self.scheduler = scheduler
        self.urgent = urgent
        self.dealer, endpoint = bulk  # of the bulk lane
        self.kernel = KernelLink(self.dealer, port=parse_endpoint(endpoint).port)  # likewise
        self.dealer.connect(endpoint)
        self.sockets = (self.dealer, self.kernel.monitor, urgent.fd)
        self.is_stalled = False

    def close(self, poller: zmq.Poller) -> None:
        for socket in self.sockets:
            if socket in poller:
                poller.unregister(socket)
        self.kernel.close()
        self.dealer.close(linger=0)
        self.urgent.close()


class Lanes(PollingThread):
    """Owns the thread and sockets that messages come and go by; a transport calls it.

    `router` is handed over to this thread; `dial` makes a socket for a peer by name and says
    where to connect it, or raises UnknownPeer. Of urgent messages to one peer at most `most_kept`
    wait for an answer.
    """

    def __init__(
        self,
        *,
        router: Any,
        peers: Peers,
        dial: Callable[[str], Dialled],
        options: LinkOptions,
        most_kept: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("lanes")
        self.inbox_wakeup = Wakeup()
        self.turns = Turns(clock)
        self.dropped: Counter[str] = Counter()
        self._router = router
        self._peers = peers
        self._dial = dial
        self._options = options
        self._most_kept = most_kept
        self._clock = clock
        # under the lock
        self._inbox: deque[Received] = deque()
        self._inbox_bytes = 0
        self._links: dict[str, _Link] = {}
        self._doomed: list[_Link] = []
        self._dropped_peers: set[str] = set()
        self._measuring: Measuring | None = None
        # of this thread alone
        self._streams: defaultdict[str, ReceiveStreams] = defaultdict(ReceiveStreams)
        self._delivered_bytes: Counter[str] = Counter()
        self._thread.start()

    def push(self, peer: str, message: Message) -> None:
        """Queue a message on the bulk lane. Raises PeerStalled, and FrameError for one so large
        that the peer would take no chunk of it."""
        head, payload = _encoded(peer, message)
        with self._lock:
            scheduler = self._link(peer).scheduler
            if not scheduler.has_room(memoryview(payload).nbytes):
                raise PeerStalled(
                    f"{self._options.most_waiting_bytes} bytes of prompts wait for {peer!r} "
                    f"already; a {message.kind.name} was not sent"
                )
            self._give_way(memoryview(payload).nbytes, is_prompt=True)
            scheduler.push(head, payload)
        self._wakeup.wake()

    def send_urgent(self, peer: str, message: Message) -> None:
        """Send a message on the urgent lane now. Raises PeerStalled, and FrameError for one so
        large that the peer would break the connection, again each time it went."""
        head, payload = _encoded(peer, message)
        with self._lock:
            urgent = self._link(peer).urgent
        urgent.send(head, payload)

    def _on_urgent(self, scheduler: LinkScheduler, n_bytes: int, is_again: bool) -> None:
        with self._lock:
            self._give_way(n_bytes, is_prompt=False)
            scheduler.on_urgent(n_bytes, is_again=is_again, now_s=self._clock())

    def measure(self, order: MeasureOrder) -> bool:
        """Begin to find out what a link does; False: something is under way already,
        on that link or to measure another, or links are not scheduled."""
        if self._options.rule is not LinkRule.SCHEDULED:
            return False
        with self._lock:
            scheduler = self._link(order.peer).scheduler
            if self._measuring is not None or scheduler.has_waiting or scheduler.in_flight_bytes:
                return False
            self._measuring = Measuring(order, scheduler, now_s=self._clock())
        self._wakeup.wake()
        return True

    def _give_way(self, n_bytes: int, *, is_prompt: bool) -> None:
        if self._measuring is not None:
            self._measuring.on_traffic(n_bytes, is_prompt=is_prompt)

    def deliver(self, received: Received) -> None:
        """Put a message among those received."""
        with self._lock:
            self._inbox.append(received)
            self._inbox_bytes += memoryview(received.message.payload).nbytes
            self.inbox_wakeup.wake()  # within the lock: awake only while something is there

    def take(self, most: int) -> list[Received]:
        """What was received, oldest first."""
        with self._lock:
            self.inbox_wakeup.clear()
            was_full = self._is_full
            taken = [self._inbox.popleft() for _ in range(min(most, len(self._inbox)))]
            self._inbox_bytes -= sum(memoryview(one.message.payload).nbytes for one in taken)
            if self._inbox:
                self.inbox_wakeup.wake()
        if was_full:
            self._wakeup.wake()
        return taken

    def drop_link(self, peer: str) -> None:
        """The peer left or moved: what waits for it is lost."""
        with self._lock:
            self._dropped_peers.add(peer)
            link = self._links.pop(peer, None)
            if link is not None:
                self._doomed.append(link)
            if self._measuring is not None and self._measuring.peer == peer:
                self._measuring = None
        self._wakeup.wake()

    def link_stats(self) -> dict[str, LinkStats]:
        """What is known of the link to each peer something was sent to."""
        with self._lock:
            now_s = self._clock()
            return {peer: link.scheduler.stats(now_s) for peer, link in self._links.items()}

    def close(self) -> None:
        super().close()
        self.inbox_wakeup.close()

    @property
    def _is_full(self) -> bool:
        return len(self._inbox) >= MAX_INBOX_MESSAGES or self._inbox_bytes >= MAX_INBOX_BYTES

    def _link(self, peer: str) -> _Link:
        """Raises UnknownPeer."""
        link = self._links.get(peer)
        if link is None:
            scheduler, (dealer, endpoint) = LinkScheduler(self._options), self._dial(peer)
            dealer.connect(endpoint)
            urgent = UrgentConnection(
                peer,
                dealer,
                most_kept=self._most_kept,
                on_sent=partial(self._on_urgent, scheduler),
                clock=self._clock,
            )
            link = self._links[peer] = _Link(peer, scheduler, self._dial(peer), urgent)
            self._wakeup.wake()
        return link

    def _release(self) -> None:
        for link in (*self._links.values(), *self._doomed):
            link.close(self._poller)
        self._router.close(linger=0)

    def _turn(self) -> None:
        """Wait for something and do all there is."""
        with self._lock:
            links = list(self._links.values())
            self._poller.register(self._router, 0 if self._is_full else zmq.POLLIN)
            now_s = self._clock()
            if self._measuring is not None and self._measuring.has_ended(now_s):
                self._measuring = None
            wakes = [link.scheduler.wake_s(now_s=now_s) for link in links]
            wakes += [link.urgent.probe_s for link in links]
            wakes += [] if self._measuring is None else [self._measuring.ends_s]
        readable = self._poll(min([*wakes, now_s + _LONGEST_WAIT_S]) - now_s)
        if self._closing:
            return
        with self._lock:
            doomed, self._doomed = self._doomed, []
            dropped, self._dropped_peers = self._dropped_peers, set()
            links = list(self._links.values())
        for link in doomed:
            link.close(self._poller)
        for peer in dropped.difference(self._peers.by_name):
            self._streams[peer].forget_chunks()  # half a prompt may be a hundred megabytes
        if self._router in readable:
            self._receive()
        for link in links:
            is_new = link.dealer not in self._poller
            if is_new:
                for socket in link.sockets:
                    self._poller.register(socket, zmq.POLLIN)
            if link.dealer in readable:
                self._hear(link)
            if link.kernel.monitor in readable:
                link.kernel.follow()
            self._serve(link)
            if is_new or link.urgent.fd in readable or self._clock() >= link.urgent.probe_s:
                link.urgent.tend()

    def _receive(self) -> None:
        for _ in range(_RECEIVED_AT_ONCE):
            if not self._router.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                return
            frames = self._router.recv_multipart(zmq.NOBLOCK, copy=False)
            key = str(frames[-1].get("User-Id"))
            sender = self._peers.name_of_key.get(key)
            if sender is None:  # left the peers after its handshake
                self.dropped[key] += 1
                continue
            self._delivered_bytes[sender] += sum(len(frame) for frame in frames[1:])
            try:
                message = self._message(sender, frames)
            except FrameError as error:
                self.dropped[sender] += 1
                if self.dropped[sender] == 1:
                    logger.warning("dropped a malformed message of peer %s: %s", sender, error)
                continue
            if message is not None:
                self.deliver(Received(sender=sender, message=message))

    def _message(self, sender: str, frames: list[Any]) -> Message | None:
        identity, *rest = frames
        if rest and is_link_frame(rest[0].buffer):
            return self._message_of_lane(sender, identity, rest)
        if len(rest) != 2:
            raise FrameError(f"{len(rest)} frames; a message has a head and a payload")
        return decode(rest[0].buffer, rest[1].buffer)

    def _message_of_lane(self, sender: str, identity: Any, frames: list[Any]) -> Message | None:
        """Acks what came, if it is to be; the message that is complete now."""
        frame = decode_link_frame(frames[0].buffer)
        if isinstance(frame, Ack | Echo):
            raise FrameError("an answer where messages come")
        if isinstance(frame, Beat):
            self._echo(identity, frame)
            return None
        if len(frames) != (3 if isinstance(frame, Chunk | Urgent) else 1):
            raise FrameError(f"{len(frames)} frames; a chunk has three and a probe is one")
        streams, whole = self._streams[sender], None
        try:
            if isinstance(frame, Chunk | Urgent):
                whole = streams.accept(frame, frames[1].buffer, frames[2].buffer)
        finally:
            if whole is None or not isinstance(frame, Urgent) or frame.asks:
                expected = streams.expected(frame.stream)
                self._acknowledge(sender, identity, frame, expected=expected)
        if whole is None or bytes(memoryview(whole[0])) == FILLER_HEAD:
            return None
        return decode(memoryview(whole[0]), memoryview(whole[1]))

    def _acknowledge(self, sender: str, identity: Any, frame: LinkFrame, *, expected: int) -> None:
        ack = ack_of(
            frame,
            expected=expected,
            delivered_bytes=self._delivered_bytes[sender],
        )
        self._answer(identity, encode_link_frame(ack))

    def _echo(self, identity: Any, beat: Beat) -> None:
        echo = Echo(
            sequence=beat.sequence,
            turn_us=round(self.turns.so_far_s() * 1e6),
            longest_turn_us=round(self.turns.longest_s * 1e6),
        )
        self._answer(identity, encode_link_frame(echo))

    def _answer(self, identity: Any, frame: bytes) -> None:
        try:
            self._router.send_multipart([identity.bytes, frame], zmq.NOBLOCK)
        except zmq.Again:
            self.dropped["acks"] += 1  # a later one says the same and more

    def _hear(self, link: _Link) -> None:
        """The acks of a link."""
        for ack in answers(link.dealer, Ack, peer=link.peer):
            with self._lock:
                link.scheduler.on_ack(ack, now_s=self._clock())

    def _serve(self, link: _Link) -> None:
        """Send what may go now, and say when the link stalls or goes on."""
        now_s = self._clock()
        with self._lock:
            is_measured = self._measuring is not None and self._measuring.peer == link.peer
            is_due = is_measured or link.scheduler.wake_s(now_s=now_s) <= now_s
            if not is_due and link.scheduler.is_stalled(now_s) == link.is_stalled:
                return
            self._look(link, now_s)
            probe: Probe | None = link.scheduler.probe(now_s=now_s)
        if probe is not None:
            self._send(link, encode_link_frame(probe))
        while True:
            now_s = self._clock()
            with self._lock:
                if self._measuring is not None and self._measuring.peer == link.peer:
                    self._measuring.fill(now_s=now_s)
                sending = link.scheduler.next(now_s=now_s)
            if sending is None:
                break
            header, piece = encode_link_frame(sending.header), sending.piece
            self._send(link, header, piece.head, piece.part)
        with self._lock:
            stalled = link.scheduler.is_stalled(now_s)
        if stalled != link.is_stalled:
            link.is_stalled = stalled
            if stalled:
                logger.warning(
                    "the link to %s takes no prompts: %d bytes under way without an answer (is it "
                    "there, and with the same --data-security?)",
                    link.peer,
                    link.scheduler.in_flight_bytes,
                )
            else:
                logger.info("the link to %s goes on", link.peer)

    def _look(self, link: _Link, now_s: float) -> None:
        """Ask TCP what the link delivers, and say how fast it may send."""
        if link.scheduler.look_is_due(now_s):
            link.scheduler.on_look(link.kernel.look(), now_s=now_s)
            link.kernel.pace(link.scheduler.bulk_pace(now_s))

    def _send(self, link: _Link, *frames: Bytes) -> None:
        try:
            link.dealer.send_multipart(frames, zmq.NOBLOCK, copy=False)
        except zmq.Again:
            self.dropped[link.peer] += 1  # the next probe finds the gap


def _encoded(peer: str, message: Message) -> tuple[bytes, Bytes]:
    """Head and payload. Raises FrameError."""
    head, payload = encode(message)
    n_bytes = memoryview(payload).nbytes
    if n_bytes > MAX_PAYLOAD_BYTES:
        raise FrameError(
            f"a {message.kind.name} of {n_bytes} bytes for {peer!r}; at most "
            f"{MAX_PAYLOAD_BYTES} are taken: make the steps smaller (max_batch_tokens)"
        )
    return head, payload
