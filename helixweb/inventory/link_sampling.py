"""Which pairs of processes have their link measured, and which of the two dials. Pure.

Of a small cluster all pairs. Of a larger one, so that it stays a matter of seconds: each node with
the next of its region, and some pairs of each two regions; the others have what these show.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from planner import COORDINATOR
from runtime.protocol.endpoints import parse_endpoint
from runtime.protocol.reach import Reach, weights_endpoint

Pair = tuple[str, str]

# With more nodes pairs are sampled.
ALL_PAIRS_UP_TO = 16
SAMPLES_BETWEEN_REGIONS = 3
REFUSED = "connection refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A node or coordinator that joined, and what it reported of the others. `heard`: it is
    online."""

    name: str
    is_coordinator: bool = False
    region: str
    endpoint: str
    heard: bool
    joined_at: datetime
    reach: Reach = field(default_factory=Reach)

    @property
    def end(self) -> str:
        """The name that links have for it."""
        return COORDINATOR if self.is_coordinator else self.name

    @property
    def weights_endpoint(self) -> str:
        """Endpoint from which others fetch weights; empty: it serves none."""
        return weights_endpoint(self.endpoint, self.reach.weights_port)

    def why_not(self, target: "Member") -> str:
        """Why it does not reach the target, as its system says it; empty if it is not known not
        to. Where nothing listens, that is a fault if the process says it listens."""
        if target.endpoint in self.reach.refused and target.reach.listens:
            return REFUSED
        return self.reach.failing.get(target.endpoint, "")

    def why_no_weights(self, target: "Member") -> str:
        """The same of the port at which the target serves weights, as long as it is up."""
        if target.weights_endpoint in self.reach.refused:
            return REFUSED
        return self.reach.failing.get(target.weights_endpoint, "")


def sampled_pairs(members: Sequence[Member]) -> list[tuple[Member, Member]]:
    """Each pair once, the first of `members` first; the same for the same members."""
    nodes = [member for member in members if not member.is_coordinator]
    if len(nodes) <= ALL_PAIRS_UP_TO:
        return list(itertools.combinations(members, 2))
    regions: dict[str, list[Member]] = defaultdict(list)
    for node in nodes:
        regions[node.region].append(node)
    pairs = {
        frozenset((one.end, other.end)): (one, other)
        for one, other in _samples(regions, [one for one in members if one.is_coordinator])
        if one is not other
    }
    return list(pairs.values())


def _samples(
    regions: Mapping[str, Sequence[Member]], coordinators: Iterable[Member]
) -> Iterator[tuple[Member, Member]]:
    for nodes in regions.values():
        yield from zip(nodes, (*nodes[1:], nodes[0]), strict=True)
        for coordinator in coordinators:
            yield from ((coordinator, node) for node in nodes[:SAMPLES_BETWEEN_REGIONS])
    for ours, theirs in itertools.combinations(regions.values(), 2):
        for number in range(SAMPLES_BETWEEN_REGIONS):
            yield ours[number % len(ours)], theirs[number % len(theirs)]


def orders(
    members: Sequence[Member], *, is_known: Callable[[Member, Member], bool]
) -> dict[str, tuple[str, ...]]:
    """The endpoints to which each process measures links now, by its own endpoint.

    `is_known`: whether a direction needs no measurement. Machines that serve are left out: their
    processes report that they do not measure.
    """
    serving = {
        parse_endpoint(member.endpoint).host
        for member in members
        if member.heard and member.endpoint and not member.reach.measures
    }
    ready = [
        member
        for member in members
        if member.heard
        and member.reach.measures
        and member.reach.tried
        and parse_endpoint(member.endpoint).host not in serving
    ]
    free = {member.end for member in ready}
    found: dict[str, list[str]] = defaultdict(list)
    for number, pair in enumerate(sampled_pairs(members)):
        one, other = pair if number % 2 else reversed(pair)
        if not {one.end, other.end} <= free:
            continue
        if is_known(one, other) and is_known(other, one):
            continue
        for source, target in ((one, other), (other, one)):
            if _can_dial(source, target):
                found[source.endpoint].append(target.endpoint)
                break
    return {source: tuple(targets) for source, targets in found.items()}


def _can_dial(source: Member, target: Member) -> bool:
    """Whether the source can measure the link by dialling the target. A coordinator's data port is
    never idle, so it says whether it answers there."""
    reach = source.reach
    is_cut = target.endpoint in reach.failing or target.endpoint in reach.refused
    answers = target.reach.answers if target.is_coordinator else target.reach.listens
    return answers and not is_cut
