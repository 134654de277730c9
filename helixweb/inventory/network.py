"""The network of a cluster as people look at it: effective links, and a summary by region. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from planner.domain.cluster import COORDINATOR, Link

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionPair:
    """All links from one region to another; bytes/s and seconds. No link: all zero."""

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
    """`links` has the link that counts for each pair: its own, else that of its regions."""

    names: tuple[str, ...]
    links: Mapping[Pair, Link]
    regions: tuple[str, ...]
    rows: tuple[RegionRow, ...]

    @property
    def possible(self) -> int:
        """Directed pairs."""
        return len(self.names) * (len(self.names) - 1)


def build_network(
    *,
    region_by_node: Mapping[str, str],
    coordinator_region: str,
    links: Iterable[Link],
    region_links: Iterable[Link],
) -> Network:
    """Nodes in the order given, after the coordinator, which is a region of its own here."""
    own = {(link.source, link.target): link for link in links}
    by_regions = {(link.source, link.target): link for link in region_links}
    region_of = {COORDINATOR: coordinator_region, **region_by_node}
    effective = {}
    for source in region_of:
        for target in region_of:
            link = own.get((source, target)) or by_regions.get(
                (region_of[source], region_of[target])
            )
            if source != target and link is not None:
                effective[source, target] = link
    groups = {COORDINATOR: COORDINATOR, **region_by_node}
    return Network(
        names=tuple(region_of),
        links=effective,
        regions=tuple(dict.fromkeys(groups.values())),
        rows=tuple(_rows(groups, effective)),
    )


def _rows(groups: Mapping[str, str], links: Mapping[Pair, Link]) -> Iterable[RegionRow]:
    members: dict[str, int] = defaultdict(int)
    for group in groups.values():
        members[group] += 1
    between: dict[Pair, list[Link]] = defaultdict(list)
    for (source, target), link in links.items():
        between[groups[source], groups[target]].append(link)
    for source in members:
        yield RegionRow(
            source=source,
            pairs=tuple(
                _region_pair(
                    between[source, target],
                    possible=members[source] * (members[target] - (source == target)),
                )
                for target in members
            ),
        )


def _region_pair(links: Sequence[Link], *, possible: int) -> RegionPair:
    rates = [link.bandwidth_bytes_per_s for link in links]
    latencies = [link.latency_s for link in links]
    return RegionPair(
        connected=len(links),
        possible=possible,
        slowest_bytes_per_s=min(rates, default=0.0),
        fastest_bytes_per_s=max(rates, default=0.0),
        shortest_s=min(latencies, default=0.0),
        longest_s=max(latencies, default=0.0),
    )
