"""What a stage needs of its transport; `ZmqTransport` is one."""

from dataclasses import dataclass
from typing import Protocol

from runtime.protocol.data import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A decoded message and the authenticated name of the peer that sent it."""

    sender: str
    message: Message


class Sender(Protocol):
    """The half of a transport that sends: never blocks, and keeps the order to each peer."""

    def send(self, peer: str, message: Message) -> None:
        """Queue `message` for `peer`. Raises a SendError; then it was not queued."""

    def close(self) -> None:
        """Release sockets and ports; idempotent."""


class Transport(Sender, Protocol):
    """Used from one thread."""

    def receive(self, *, timeout_s: float) -> list[Received]:
        """All messages that are there; waits up to `timeout_s` for the first (0: do not wait)."""


class SendError(Exception):
    """The root of what `send` raises; the message names the peer."""


class UnknownPeer(SendError):
    """A message for a name that is not among the peers of this deployment."""


class PeerStalled(SendError):
    """So many messages wait for the peer already that it has gone or will not catch up."""
