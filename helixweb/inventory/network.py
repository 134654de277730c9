"""The network of a cluster as people look at it: what counts for a pair, and a summary by region.

Pure. A thousand nodes have a million pairs, so nothing here goes over all of them: regions are
summed up from their sizes, and pairs are looked up when they are shown.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from planner.domain.cluster import COORDINATOR

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLink:
    """What is known from `source` to `target`, and since when; `recorded_at` None: not kept.

    `of_regions`: the link of their regions counts, the pair has none of its own.
    """

    source: str
    target: str
    bandwidth_bytes_per_s: float
    latency_s: float
    origin: str
    recorded_at: datetime | None
    of_regions: bool = False


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionRow:
    """What one region sends, in the order of `Network.regions`."""

    source: str
    pairs: tuple[RegionPair, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """`members` are the names in each region; the coordinator is a region of its own."""

    names: tuple[str, ...]
    regions: tuple[str, ...]
    members: Mapping[str, tuple[str, ...]]
    rows: tuple[RegionRow, ...]
    region_of: Mapping[str, str]
    own: Mapping[Pair, KnownLink]
    by_regions: Mapping[Pair, KnownLink]

    @property
    def possible(self) -> int:
        """Directed pairs."""
        return len(self.names) * (len(self.names) - 1)

    @property
    def known(self) -> int:
        """Directed pairs that are connected."""
        return sum(pair.connected for row in self.rows for pair in row.pairs)

    def link(self, source: str, target: str) -> KnownLink | None:
        """What counts for the pair: its own link, else that of its regions."""
        if source == target:
            return None
        regions = self.region_of[source], self.region_of[target]
        return self.own.get((source, target)) or self.by_regions.get(regions)

    def links_between(
        self, sources: Iterable[str], targets: Iterable[str]
    ) -> dict[Pair, KnownLink]:
        """What counts for every pair of these names that is connected."""
        ends = tuple(targets)
        return {
            (source, target): link
            for source in sources
            for target in ends
            if (link := self.link(source, target)) is not None
        }


def build_network(
    *,
    region_by_node: Mapping[str, str],
    coordinator_region: str,
    links: Iterable[KnownLink],
    region_links: Iterable[KnownLink],
) -> Network:
    """Nodes in the order given, after the coordinator."""
    region_of = {COORDINATOR: coordinator_region, **region_by_node}
    own = {
        (link.source, link.target): link
        for link in links
        if link.source in region_of and link.target in region_of
    }
    by_regions = {(link.source, link.target): link for link in region_links}
    group_of = {COORDINATOR: COORDINATOR, **region_by_node}
    members: dict[str, list[str]] = defaultdict(list)
    for name, group in group_of.items():
        members[group].append(name)
    return Network(
        names=tuple(region_of),
        regions=tuple(members),
        members={group: tuple(names) for group, names in members.items()},
        rows=tuple(_rows(group_of, members, coordinator_region, own, by_regions)),
        region_of=region_of,
        own=own,
        by_regions=by_regions,
    )


def _rows(
    group_of: Mapping[str, str],
    members: Mapping[str, Sequence[str]],
    coordinator_region: str,
    own: Mapping[Pair, KnownLink],
    by_regions: Mapping[Pair, KnownLink],
) -> Iterable[RegionRow]:
    between: dict[Pair, list[KnownLink]] = defaultdict(list)
    for (source, target), link in own.items():
        between[group_of[source], group_of[target]].append(link)

    def region(group: str) -> str:
        return coordinator_region if group == COORDINATOR else group

    for source in members:
        yield RegionRow(
            source=source,
            pairs=tuple(
                _region_pair(
                    source,
                    target,
                    links=between[source, target],
                    shared=by_regions.get((region(source), region(target))),
                    possible=len(members[source]) * (len(members[target]) - (source == target)),
                )
                for target in members
            ),
        )


def _region_pair(
    source: str,
    target: str,
    *,
    links: Sequence[KnownLink],
    shared: KnownLink | None,
    possible: int,
) -> RegionPair:
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
