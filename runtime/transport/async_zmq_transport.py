"""The transport of a process that lives in an asyncio loop: the coordinator."""

import asyncio
from collections.abc import Iterable

from runtime.protocol.control import PeerAddress
from runtime.protocol.data_security import DataSecurity
from runtime.transport.base import Received
from runtime.transport.heartbeats import PeerEvent
from runtime.transport.keys import KeyPair
from runtime.transport.zmq_transport import DataPlane


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
        self._follow_all()

    def set_peers(self, peers: Iterable[PeerAddress]) -> None:
        """Talk to exactly these from now on, and watch whether they are there."""
        super().set_peers(peers)
        self._follow_all()

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

    def _follow_all(self) -> None:
        others = {name: peer for name, peer in self._peers.by_name.items() if name != self._name}
        self._monitor.follow(others)


async def _readable(fd: int) -> None:
    """Wait until `fd` can be read."""
    loop, something = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fd, something.set)
    try:
        await something.wait()
    finally:
        loop.remove_reader(fd)
