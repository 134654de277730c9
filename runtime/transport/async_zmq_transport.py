"""`ZmqTransport` for a process that lives in an asyncio loop: the coordinator."""

import asyncio
from collections.abc import Iterable

from runtime.protocol.control import LinkStats, PeerAddress
from runtime.protocol.data import Message
from runtime.protocol.data_security import DataSecurity
from runtime.transport.base import Received
from runtime.transport.heartbeats import PeerEvent
from runtime.transport.keys import KeyPair
from runtime.transport.zmq_transport import ZmqTransport


class AsyncZmqTransport:
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
        self._name = name
        self._transport = ZmqTransport(
            name=name, bind=bind, keys=keys, peers=peers, security=security
        )
        self._watch = self._transport.watch()
        self._woken: asyncio.Future[None] | None = None
        self._follow(peers)

    @property
    def endpoint(self) -> str:
        """Where it receives, as peers dial it."""
        return self._transport.endpoint

    @property
    def dropped_messages(self) -> int:
        """Bad frames since the start."""
        return self._transport.dropped_messages

    def link_stats(self) -> dict[str, LinkStats]:
        """What is known of the link to each peer something was sent to."""
        return self._transport.link_stats()

    def set_peers(self, peers: Iterable[PeerAddress]) -> None:
        """Talk to exactly these from now on, and watch whether they are there."""
        peers = tuple(peers)
        self._transport.set_peers(peers)
        self._follow(peers)

    def send(self, peer: str, message: Message) -> None:
        """Queue `message` for `peer`; never blocks. Raises a SendError, FrameError."""
        self._transport.send(peer, message)
        if peer == self._name:
            self._wake()

    async def receive(self) -> list[Received]:
        """At least one message, all that are there. Safe to cancel: nothing is lost."""
        loop = asyncio.get_running_loop()
        while not (received := self._transport.receive(timeout_s=0)):
            self._transport.rest()
            # The descriptor fires on edges only; `receive` above emptied it.
            self._woken = loop.create_future()
            loop.add_reader(self._transport.receive_fd, self._wake)
            try:
                await self._woken
            finally:
                loop.remove_reader(self._transport.receive_fd)
                self._woken = None
        return received

    async def peer_events(self) -> list[PeerEvent]:
        """At least one piece of news of peers, oldest first. Safe to cancel: nothing is lost."""
        loop, something = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._watch.wakeup.fd, something.set)
        try:
            while not (news := self._watch.take()):
                something.clear()
                await something.wait()
        finally:
            loop.remove_reader(self._watch.wakeup.fd)
        return news

    def close(self) -> None:
        """Release sockets and port; idempotent. Cancel the receiving tasks first."""
        self._transport.close()

    def _follow(self, peers: Iterable[PeerAddress]) -> None:
        self._watch.follow({peer.name: peer for peer in peers if peer.name != self._name})

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
