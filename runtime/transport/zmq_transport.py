"""ZeroMQ with CURVE: two connections to each peer, one for decodes and one for prompts.

Decodes and all that is small go at once, by the caller's thread, on the urgent lane; prompts go in
chunks on the bulk lane, when `link_scheduler` says, by the thread of `lanes`, which also receives.
Who sent a message is the public key its connection proved, never what the frame claims; a peer
whose key is not among ours does not get past the handshake. In clear it says its key only.
"""

import asyncio
import math
import select
from collections.abc import Iterable
from functools import partial
from typing import Any

import zmq

from runtime.protocol.control import LinkStats, PeerAddress
from runtime.protocol.coordinators import is_coordinator
from runtime.protocol.data import MeasureOrder, Message
from runtime.protocol.data_security import DataSecurity
from runtime.transport.base import Received, UnknownPeer
from runtime.transport.heartbeat_monitor import HeartbeatMonitor
from runtime.transport.heartbeats import PeerEvent
from runtime.transport.lanes import Dialled, Lanes
from runtime.transport.link_scheduler import LinkOptions, LinkRule
from runtime.transport.zmq_sockets import (
    BindFailed,
    KeyPair,
    Peers,
    RetryingAuthenticator,
    receiving_socket,
    sending_socket,
)

__all__ = ["BindFailed", "ZmqTransport"]
# Messages that may wait for one peer, on each lane. Far more than the stages of a plan that
# works ever have under way; a peer that is away longer than these last makes `send` raise.
MAX_WAITING_MESSAGES = 10_000
# Messages taken in one call, so that a flood cannot keep the caller from its own work.
MAX_MESSAGES_PER_RECEIVE = 1000
_BEATS_WAITING = 2  # what waits longer is stale


class DataPlane:
    """Owns the sockets and threads of a process's data plane; a transport adds how it receives.

    `name` is ours, `bind` like tcp://127.0.0.1:9000 (port 0: any).
    """

    def __init__(
        self,
        *,
        name: str,
        bind: str,
        keys: KeyPair,
        peers: Iterable[PeerAddress] = (),
        security: DataSecurity = DataSecurity.CURVE,
        options: LinkOptions | None = None,
    ) -> None:
        self._name = name
        self._keys = keys
        self._options = options or LinkOptions()
        self._security = security
        self._peers = Peers(peers, public_key=keys.public_key)
        self._closed = False
        self._watch: HeartbeatMonitor | None = None
        self._used: set[str] | None = None  # stages that something was sent to, if they are watched
        self._context = zmq.Context()
        self._authenticator = RetryingAuthenticator(self._context)
        self._authenticator.start()
        self._authenticator.admit(self._peers)
        try:
            router = receiving_socket(
                self._context,
                bind=bind,
                keys=keys,
                security=security,
                most_waiting=MAX_WAITING_MESSAGES,
            )
        except BindFailed:
            self._authenticator.stop()
            self._context.term()
            raise
        self._endpoint: str = router.getsockopt_string(zmq.LAST_ENDPOINT)
        self._lanes = Lanes(
            router=router,
            peers=self._peers,
            dial=self._dial,
            options=self._options,
            most_kept=MAX_WAITING_MESSAGES,
        )

    @property
    def endpoint(self) -> str:
        """Where we listen, the port filled in."""
        return self._endpoint

    @property
    def dropped_messages(self) -> int:
        """Frames that were not ours, or came from a peer that left, since the start."""
        return self._lanes.dropped.total()

    @property
    def receive_fd(self) -> int:
        """Readable while a message may be there; `receive` makes it unreadable."""
        return self._lanes.inbox_wakeup.fd

    def link_stats(self) -> dict[str, LinkStats]:
        """What is known of the link to each peer something was sent to."""
        return self._lanes.link_stats()

    def set_peers(self, peers: Iterable[PeerAddress]) -> None:
        """Replace the peers; connections to those that left or moved are closed."""
        before = dict(self._peers.by_name)
        self._peers.replace(peers)
        for name, address in before.items():
            if self._peers.by_name.get(name) != address:
                self._lanes.drop_link(name)
                if self._used is not None:
                    self._used.discard(name)
        self._follow()

    def watch(self, *, generation: int | None = None) -> HeartbeatMonitor:
        """Reports whether the peers are there; called once at most.

        A stage gives a `generation` that it serves. It watches the coordinators, and what something
        was sent to; coordinators are told which of the latter cannot be reached.
        """
        if self._watch is not None:
            raise RuntimeError("the peers of this transport are watched already")
        self._watch = HeartbeatMonitor(
            socket_for=partial(self._socket_for, most_waiting=_BEATS_WAITING), generation=generation
        )
        self._used = None if generation is None else set()
        self._follow()
        return self._watch

    def measure(self, order: MeasureOrder) -> bool:
        """Begin to find out what a link does, which `link_stats` tells once it is
        known; gives way to all else. False: not now. Raises UnknownPeer."""
        if order.peer == self._name or order.peer not in self._peers.by_name:
            raise UnknownPeer(f"{order.peer!r}, the link to which is to be measured, is not a peer")
        return self._lanes.measure(order)

    def send(self, peer: str, message: Message) -> None:
        """Never blocks: what a peer does not take yet waits in memory, in order, up to a bound.

        Messages of prompts keep their order among each other, all others among theirs.
        """
        if peer == self._name:
            self._lanes.deliver(Received(sender=peer, message=message))
            return
        if peer not in self._peers.by_name:
            raise UnknownPeer(f"{peer!r} is not a peer of this deployment")
        if self._used is not None and peer not in self._used:
            self._used.add(peer)
            self._follow()
        if message.is_prefill or self._options.rule is LinkRule.FIFO:
            self._lanes.push(peer, message)
        else:
            self._lanes.send_urgent(peer, message)

    def works_on(self, rows: int) -> None:
        """Until messages are taken again, a step of so many rows runs: it may last accordingly."""
        self._lanes.turns.works_on(rows)

    def rest(self) -> None:
        """Until messages are taken again, it waits for some: that takes as long as it likes."""
        self._lanes.turns.rest()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._watch is not None:
            self._watch.close()
        self._lanes.close()
        self._authenticator.stop()
        self._context.destroy(linger=0)  # a socket that a failure left open would hold `term` up

    def _take(self) -> list[Received]:
        """All that is there; bad frames are dropped. The process's turn begins."""
        self._lanes.turns.rest()
        received = self._lanes.take(MAX_MESSAGES_PER_RECEIVE)
        self._lanes.turns.begin()
        return received

    def _follow(self) -> None:
        """Watch all others, as a stage the coordinators and what something was sent to."""
        used = self._used
        if self._watch is not None:
            self._watch.follow(
                {
                    name: address
                    for name, address in self._peers.by_name.items()
                    if name != self._name and (used is None or is_coordinator(name) or name in used)
                }
            )

    def _dial(self, peer: str) -> Dialled:
        address = self._peers.by_name.get(peer)
        if address is None:
            raise UnknownPeer(f"{peer!r} is not a peer of this deployment")
        return self._socket_for(address, MAX_WAITING_MESSAGES), address.endpoint

    def _socket_for(self, address: PeerAddress, most_waiting: int) -> Any:
        return sending_socket(
            self._context,
            address,
            keys=self._keys,
            security=self._security,
            most_waiting=most_waiting,
        )


class ZmqTransport(DataPlane):
    """The transport of a process with a thread of its own: of stages. Implements `Transport`."""

    def receive(self, *, timeout_s: float) -> list[Received]:
        """All that is there; waits up to `timeout_s` for the first. Bad frames are dropped."""
        received = self._take()
        if not received and timeout_s > 0:
            self.rest()
            poller = select.poll()
            poller.register(self.receive_fd, select.POLLIN)
            poller.poll(math.ceil(timeout_s * 1000))
            received = self._take()
        return received


class AsyncZmqTransport(DataPlane):
    """The transport of a process with an event loop; the coordinator owns one.

    Same as ZmqTransport, but `receive` is awaited, and peers are watched. One task receives at
    a time, and one hears `peer_events`.
    """

    def __init__(
        self,
        *,
        name: str,
        bind: str,
        keys: KeyPair,
        peers: tuple[PeerAddress, ...] = (),
        security: DataSecurity = DataSecurity.CURVE,
    ) -> None:
        super().__init__(name=name, bind=bind, keys=keys, peers=peers, security=security)
        self._monitor = self.watch()

    async def receive(self) -> list[Received]:
        """At least one message, all that are there. Safe to cancel: nothing is lost."""
        while not (received := self._take()):
            self.rest()
            await _readable(self.receive_fd)
        return received

    async def peer_events(self) -> list[PeerEvent]:
        """At least one piece of news of peers, oldest first. Safe to cancel: nothing is lost."""
        while not (news := self._monitor.take()):
            await _readable(self._monitor.wakeup.fd)
        return news


async def _readable(fd: int) -> None:
    """Wait until `fd` can be read."""
    loop, something = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fd, something.set)
    try:
        await something.wait()
    finally:
        loop.remove_reader(fd)
