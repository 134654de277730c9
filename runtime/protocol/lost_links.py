"""Which peers a stage cannot reach, as it tells the coordinator: a message of kind LOST_LINKS.

The payload is their names, UTF-8, one to a line; all of them every time, none when all are there.
"""

from collections.abc import Collection

from runtime.protocol.data import Kind, Message
from runtime.protocol.frame_error import FrameError

MAX_PEERS = 4096


def lost_links_message(peers: Collection[str], *, generation: int) -> Message:
    """Raises FrameError for a name with a line break, or for too many."""
    if len(peers) > MAX_PEERS or any("\n" in peer for peer in peers):
        raise FrameError(f"{len(peers)} names of peers; at most {MAX_PEERS}, each of one line, fit")
    return Message(
        kind=Kind.LOST_LINKS, generation=generation, payload="\n".join(sorted(peers)).encode()
    )


def unpack_lost_links(message: Message) -> frozenset[str]:
    """The names of the peers that its sender cannot reach. Raises FrameError."""
    try:
        text = bytes(message.payload).decode()
    except UnicodeDecodeError as error:
        raise FrameError(f"names of lost peers are not UTF-8: {error}") from error
    names = frozenset(text.split("\n")) if text else frozenset()
    if len(names) > MAX_PEERS:
        raise FrameError(f"{len(names)} lost peers; at most {MAX_PEERS} are possible")
    return names
