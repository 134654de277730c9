"""How far a node is with the weights that it fetches, and where it serves those that it has."""

from typing import Annotated

from pydantic import Field

from runtime.protocol.message import Count, Message

SITE_SOURCE = "site"
HUB_SOURCE = "hub"
_PEER = "peer "
_Source = Annotated[str, Field(max_length=80)]  # or the name of a node


class WeightFetch(Message):
    """Of `needed_bytes` that were not on the machine, those `fetched` so far by source.

    A source is the site, the hub, or `peer NAME`; `source` is the one that sends now, empty before
    the first byte. `eta_s`: seconds until all are here at the rate so far; null: not known.
    """

    needed_bytes: Count
    fetched: dict[_Source, Count] = Field(default={}, max_length=64)
    source: _Source = ""
    eta_s: float | None = Field(default=None, ge=0)

    @property
    def fetched_bytes(self) -> int:
        """From all sources."""
        return sum(self.fetched.values())


class NodeWeights(Message):
    """`port` of the node's data host is where its agent serves weights to others; null: nowhere.

    `fetch` is of the stage that runs; null: it fetched nothing.
    """

    port: int | None = Field(default=None, ge=1, le=65535)
    fetch: WeightFetch | None = None


def peer_source(name: str) -> str:
    """The source that the agent of node `name` is."""
    return f"{_PEER}{name}"


def peer_name(source: str) -> str:
    """The name of the node that a source is."""
    return source.removeprefix(_PEER)
