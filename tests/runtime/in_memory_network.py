"""A `Transport` without sockets; every message goes through encode and decode."""

import threading
import time
from collections import deque

from runtime.protocol.data import Message, decode, encode
from runtime.transport.base import Received, UnknownPeer


class InMemoryNetwork:
    """Joins transports by name; thread-safe."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._inboxes: dict[str, deque[Received]] = {}

    def join(self, name: str) -> "InMemoryTransport":
        """A transport for `name`. Raises ValueError if the name is taken."""
        with self._condition:
            if name in self._inboxes:
                raise ValueError(f"{name!r} has joined already; names must be unique")
            self._inboxes[name] = deque()
        return InMemoryTransport(self, name)

    def leave(self, name: str) -> None:
        with self._condition:
            self._inboxes.pop(name, None)
            self._condition.notify_all()

    def deliver(self, sender: str, peer: str, message: Message) -> None:
        head, payload = encode(message)
        decoded = decode(memoryview(head), memoryview(bytes(payload)))
        with self._condition:
            inbox = self._inboxes.get(peer)
            if inbox is None:
                raise UnknownPeer(f"{peer!r} has not joined this network")
            inbox.append(Received(sender=sender, message=decoded))
            self._condition.notify_all()

    def take(self, name: str, *, timeout_s: float) -> list[Received]:
        deadline = time.monotonic() + timeout_s
        with self._condition:
            while not self._inboxes.get(name):
                remaining = deadline - time.monotonic()
                if remaining <= 0 or name not in self._inboxes:
                    return []
                self._condition.wait(remaining)
            inbox = self._inboxes[name]
            received = list(inbox)
            inbox.clear()
            return received


class InMemoryTransport:
    """A process's end of an `InMemoryNetwork`. Implements `Transport`."""

    def __init__(self, network: InMemoryNetwork, name: str) -> None:
        self._network = network
        self.name = name

    def send(self, peer: str, message: Message) -> None:
        self._network.deliver(self.name, peer, message)

    def receive(self, *, timeout_s: float) -> list[Received]:
        return self._network.take(self.name, timeout_s=timeout_s)

    def close(self) -> None:
        self._network.leave(self.name)
