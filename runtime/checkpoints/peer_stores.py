"""Other nodes' stores of fetched weights, as a fetch uses them."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext


class PeerLost(Exception):
    """Another node stopped answering, or does not have what it said."""


class PeerStores:
    """Other nodes' stores of one commit of a repository. This one: none have any."""

    @property
    def are_there(self) -> bool:
        """True if there are other nodes, which may have something now or later."""
        return False

    def look_again(self) -> None:
        """Let `offers` give what they have now."""

    def offers(self, names: Collection[str]) -> Mapping[str, tuple[str, int]]:
        """For those of the tensors that a node has: the node, and the bytes of the file."""
        return {}

    def read(self, file: str) -> bytes | None:
        """A small file of the commit; None if no node has it."""
        return None

    def stream(self, node: str, file: str, file_bytes: int) -> Iterator[bytes]:
        """A file of `node`. Raises PeerLost."""
        raise PeerLost(f"{node} has no {file}")

    def leave(self, node: str) -> None:
        """Ask this node for nothing more."""


# the stores of other nodes for a repository and a commit
OpenPeers = Callable[[str, str], AbstractContextManager[PeerStores]]


def no_peers(repository: str, commit: str) -> AbstractContextManager[PeerStores]:
    """An `OpenPeers` without any."""
    return nullcontext(PeerStores())
