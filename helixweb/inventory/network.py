"""The network of a cluster for pages: the values that count for a pair, and a summary by region.

A thousand nodes have a million pairs, so nothing here iterates over all of them: regions are
summed up from their sizes, and pairs are looked up when they are shown.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from helixweb.inventory.models import Cluster, Link, RegionLink
from planner import COORDINATOR

Pair = tuple[str, str]
KnownLink = Link | RegionLink


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionPair:
    """All links from one region to another; bytes/s and seconds. No link: all zero."""

    source: str
    target: str
    connected: int
    possible: int
    slowest_bytes_per_s: float
    fastest_bytes_per_s: float
    shortest_s: float
    longest_s: float


class Network:
    """The network of a cluster: the coordinator, which is a region of its own, and its nodes.

    `members` are the names in each region, `own` the links of pairs, `by_regions` those that count
    for pairs without a link of their own.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.region_of = cluster.region_of
        self.names = tuple(self.region_of)
        self.possible = len(self.names) * (len(self.names) - 1)
        self.own = {
            (link.source, link.target): link
            for link in cluster.links.all()
            if link.source in self.region_of and link.target in self.region_of
        }
        self.by_regions = {(link.source, link.target): link for link in cluster.region_links.all()}
        self.group_of = {**self.region_of, COORDINATOR: COORDINATOR}
        self.members: dict[str, list[str]] = {}
        for name, group in self.group_of.items():
            self.members.setdefault(group, []).append(name)

    @cached_property
    def rows(self) -> list[list[RegionPair]]:
        """A row per region with its links to each region, including itself."""
        between: dict[Pair, list[KnownLink]] = defaultdict(list)
        for (source, target), link in self.own.items():
            between[self.group_of[source], self.group_of[target]].append(link)
        return [
            [self._pair(source, target, between[source, target]) for target in self.members]
            for source in self.members
        ]

    @property
    def known(self) -> int:
        """Directed pairs that are connected."""
        return sum(pair.connected for row in self.rows for pair in row)

    def link(self, source: str, target: str) -> KnownLink | None:
        """The link of a pair: its own, else that of its regions."""
        if source == target:
            return None
        regions = self.region_of[source], self.region_of[target]
        return self.own.get((source, target)) or self.by_regions.get(regions)

    def links_between(
        self, sources: Iterable[str], targets: Iterable[str]
    ) -> dict[Pair, KnownLink]:
        """Links of all connected pairs of these names."""
        ends = tuple(targets)
        return {
            (source, target): link
            for source in sources
            for target in ends
            if (link := self.link(source, target)) is not None
        }

    def _pair(self, source: str, target: str, links: Sequence[KnownLink]) -> RegionPair:
        possible = len(self.members[source]) * (len(self.members[target]) - (source == target))
        # All members of a group are in one region.
        ends = self.region_of[self.members[source][0]], self.region_of[self.members[target][0]]
        shared = self.by_regions.get(ends)
        counted = list(links)
        if shared is not None and len(links) < possible:
            counted.append(shared)
        rates = [link.bandwidth_bytes_per_s for link in counted]
        latencies = [link.latency_s for link in counted]
        return RegionPair(
            source=source,
            target=target,
            connected=len(links) if shared is None else possible,
            possible=possible,
            slowest_bytes_per_s=min(rates, default=0.0),
            fastest_bytes_per_s=max(rates, default=0.0),
            shortest_s=min(latencies, default=0.0),
            longest_s=max(latencies, default=0.0),
        )
