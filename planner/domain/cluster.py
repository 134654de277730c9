"""Nodes, links and the coordinator of one cluster (Helix §4.1)."""

from collections.abc import Callable, Collection, Container
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, TypeVar

from planner.domain.errors import InvalidProblem
from planner.domain.limits import MAX_GPUS, BytesPerS, Name, Price, Range, Seconds, check_fields

COORDINATOR = "coordinator"
SOURCE = "source"
SINK = "sink"
RESERVED_NAMES = frozenset({COORDINATOR, SOURCE, SINK})
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine, its GPUs seen as one logical device (Helix §4.1).

    `price_per_hour` is this machine's, where it differs from its profile's. Whole-model instances
    may share its `gpus` among them.
    """

    name: Name
    region: Name
    compute_profile: str
    price_per_hour: Price | None = None
    gpus: Annotated[int, Range(1, MAX_GPUS)] = 1

    def __post_init__(self) -> None:
        check_fields(self, f"node {self.name!r}: ")
        if self.name in RESERVED_NAMES:
            raise InvalidProblem(
                f"node name {self.name!r} is reserved; rename the node "
                f"(reserved: {', '.join(sorted(RESERVED_NAMES))})"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A directed network connection: bandwidth in bytes/s, one-way latency in seconds."""

    source: Name
    target: Name
    bandwidth_bytes_per_s: BytesPerS
    latency_s: Seconds

    def __post_init__(self) -> None:
        check_fields(self, f"link {self.source} -> {self.target}: ")


SharedDirection = Literal["egress", "ingress"]
SharedScope = Literal["region", "nic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedBandwidth:
    """Bandwidth in bytes/s that everything leaving ("egress") or reaching members has together.

    Members are nodes, regions (all their nodes, the coordinator too if it is there) or the
    coordinator. With scope "region" only what leaves or enters the group of members counts, with
    "nic" also what one member sends to another.
    """

    name: Name
    members: tuple[str, ...]
    direction: SharedDirection
    bandwidth_bytes_per_s: BytesPerS
    scope: SharedScope

    def __post_init__(self) -> None:
        where = f"shared bandwidth {self.name!r}"
        check_fields(self, f"{where}: ")
        if self.name in RESERVED_NAMES:
            raise InvalidProblem(f"{where}: the name is reserved; name it differently")
        if not self.members:
            raise InvalidProblem(f"{where} has no members; name nodes, regions or {COORDINATOR!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """All nodes and directed links. `links` override `region_links`, whose ends are regions.

    `shared` limits several links together; the links' own bandwidths hold as well.
    """

    name: str
    coordinator_region: str
    nodes: tuple[Node, ...]
    region_links: tuple[Link, ...] = ()
    links: tuple[Link, ...] = ()
    shared: tuple[SharedBandwidth, ...] = ()
    _nodes_by_name: dict[str, Node] = field(init=False, repr=False, compare=False)
    _links_by_ends: dict[tuple[str, str], Link] = field(init=False, repr=False, compare=False)
    _links_by_regions: dict[tuple[str, str], Link] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.nodes:
            raise InvalidProblem(f"cluster {self.name!r} has no nodes; add at least one")
        nodes: dict[str, Node] = {}
        for node in self.nodes:
            if node.name in nodes:
                raise InvalidProblem(
                    f"node {node.name!r} is listed twice; node names must be unique"
                )
            nodes[node.name] = node
        links: dict[tuple[str, str], Link] = {}
        for link in self.links:
            for end in (link.source, link.target):
                if end != COORDINATOR and end not in nodes:
                    raise InvalidProblem(
                        f"link {link.source} -> {link.target}: {end!r} is not a node of the "
                        f"cluster; name a listed node or {COORDINATOR!r}"
                    )
            if link.source == link.target:
                raise InvalidProblem(f"link {link.source} -> {link.target} joins a node to itself")
            if (link.source, link.target) in links:
                raise InvalidProblem(
                    f"link {link.source} -> {link.target} is listed twice; keep one"
                )
            links[link.source, link.target] = link
        regions: dict[tuple[str, str], Link] = {}
        for link in self.region_links:
            if (link.source, link.target) in regions:
                raise InvalidProblem(
                    f"region pair {link.source} -> {link.target} is listed twice; keep one"
                )
            regions[link.source, link.target] = link
        _check_shared(self.shared, nodes=nodes, coordinator_region=self.coordinator_region)
        object.__setattr__(self, "_nodes_by_name", nodes)
        object.__setattr__(self, "_links_by_ends", links)
        object.__setattr__(self, "_links_by_regions", regions)

    def node(self, name: str) -> Node:
        """The node called `name`; raises KeyError."""
        return self._nodes_by_name[name]

    def has_node(self, name: str) -> bool:
        return name in self._nodes_by_name

    def names_by(self, key: Callable[[Node], Key]) -> dict[Key, list[str]]:
        """The nodes' names by what `key` says of each, in the cluster's order."""
        names: dict[Key, list[str]] = {}
        for node in self.nodes:
            names.setdefault(key(node), []).append(node.name)
        return names

    def region_of(self, name: str) -> str:
        """Region of a node or of the coordinator."""
        if name == COORDINATOR:
            return self.coordinator_region
        return self._nodes_by_name[name].region

    def link_between(self, source: str, target: str) -> Link | None:
        """The directed link, by name first, then by the regions' default; None when unreachable."""
        link = self._links_by_ends.get((source, target))
        if link is not None:
            return link
        default = self._links_by_regions.get((self.region_of(source), self.region_of(target)))
        if default is None:
            return None
        found = replace(default, source=source, target=target)
        self._links_by_ends[source, target] = found  # searches ask for the same links many times
        return found

    def members_of(self, shared: SharedBandwidth) -> frozenset[str]:
        """The nodes, and perhaps the coordinator, that share the bandwidth; a node's name wins."""
        members: set[str] = set()
        for name in shared.members:
            if name == COORDINATOR or name in self._nodes_by_name:
                members.add(name)
                continue
            members.update(node.name for node in self.nodes if node.region == name)
            if self.coordinator_region == name:
                members.add(COORDINATOR)
        return frozenset(members)

    def without(self, names: Collection[str]) -> "Cluster":
        """The cluster that is left when these nodes are gone, with their links and shares."""
        nodes = tuple(node for node in self.nodes if node.name not in names)
        kept = {COORDINATOR, self.coordinator_region}
        kept |= {node.name for node in nodes} | {node.region for node in nodes}
        shared = []
        for share in self.shared:
            members = tuple(name for name in share.members if name in kept)
            if members:
                shared.append(replace(share, members=members))
        return replace(
            self,
            nodes=nodes,
            links=tuple(
                link for link in self.links if link.source not in names and link.target not in names
            ),
            shared=tuple(shared),
        )


def free_name(wanted: str, taken: Container[str]) -> str:
    """`wanted`, with as many "+" after it as no name in `taken` is equal to."""
    while wanted in taken:
        wanted += "+"
    return wanted


def _check_shared(
    shared: tuple[SharedBandwidth, ...], *, nodes: dict[str, Node], coordinator_region: str
) -> None:
    regions = {node.region for node in nodes.values()} | {coordinator_region}
    seen: set[str] = set()
    for share in shared:
        if share.name in seen:
            raise InvalidProblem(
                f"shared bandwidth {share.name!r} is listed twice; names must be unique"
            )
        seen.add(share.name)
        for member in share.members:
            if member != COORDINATOR and member not in nodes and member not in regions:
                raise InvalidProblem(
                    f"shared bandwidth {share.name!r}: member {member!r} is neither a node nor a "
                    f"region of the cluster; name one of these or {COORDINATOR!r}"
                )
