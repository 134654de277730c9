"""A changed copy of a problem, and what a plan's placement is worth on it. Reads only; no search.

Nodes that are gone drop out, new nodes take the layers that are served least, as a server that
joins Petals does. All others keep what they hold, as far as it fits.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Annotated

from django.utils.translation import gettext as _

import planner
from helixweb.planning.models import Plan
from helixweb.planning.stored import stored_plan, stored_problem
from planner import Option, upper_bound_tokens_per_s

MAX_ADDED = 200
SECONDS_PER_HOUR = 3600.0
TOKENS_PER_MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedNodes:
    """Additional nodes of one kind."""

    count: Annotated[int, Option("How many", least=1, most=MAX_ADDED)]
    profile: Annotated[str, Option("Of profile")]
    region: Annotated[str, Option("In region")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """Changes of the copy. `upgraded` is node -> profile.

    A link's ends are nodes or the coordinator, else two regions; it replaces an existing one.
    """

    removed: frozenset[str] = frozenset()
    added: tuple[AddedNodes, ...] = ()
    upgraded: Mapping[str, str] = field(default_factory=dict)
    links: tuple[planner.Link, ...] = ()

    @property
    def sentence(self) -> str:
        """A short text of the edits, which is stored with the run; empty if there are none."""
        words = [f"without {name}" for name in sorted(self.removed)]
        words += [f"+{some.count} {some.profile} in {some.region}" for some in self.added]
        words += [f"{name} as {profile}" for name, profile in sorted(self.upgraded.items())]
        words += [f"another link {link.source} → {link.target}" for link in self.links]
        return ", ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """A placement's figures on a problem: max flow, and what it is estimated to serve.

    `price_per_hour` is of its nodes together, None if the price of one of them is not known. The
    times are None where no request is served.
    """

    nodes_used: int
    flow_tokens_per_s: float
    upper_bound_tokens_per_s: float
    decode_tokens_per_s: float
    ttft_s: float | None
    tpot_s: float | None
    requests_in_flight: float
    price_per_hour: float | None

    @property
    def million_tokens_per_price(self) -> float | None:
        """Decode tokens for a unit of price, in millions."""
        if not self.price_per_hour:
            return None
        return (
            self.decode_tokens_per_s * SECONDS_PER_HOUR / TOKENS_PER_MILLION / self.price_per_hour
        )


def edited(problem: planner.Problem, edits: Edits) -> planner.Problem:
    """The changed problem. Raises InvalidProblem naming what the problem does not have."""
    cluster = problem.cluster
    for name in sorted(edits.removed | edits.upgraded.keys()):
        if not cluster.has_node(name):
            raise planner.InvalidProblem(
                _("there is no node %(name)s in cluster %(cluster)s; use its nodes' names")
                % {"name": repr(name), "cluster": repr(cluster.name)}
            )
    if len(edits.removed) == len(cluster.nodes) and not edits.added:
        raise planner.InvalidProblem(_("all nodes are removed; keep one or add some"))
    if sum(some.count for some in edits.added) > MAX_ADDED:
        raise planner.InvalidProblem(
            _("more than %(max_added)s nodes are added; add fewer") % {"max_added": MAX_ADDED}
        )
    ends = Counter((link.source, link.target) for link in edits.links)
    if twice := [" > ".join(pair) for pair, times in ends.items() if times > 1]:
        raise planner.InvalidProblem(_("%(name)s has two rows; keep one.") % {"name": twice[0]})
    nodes = tuple(
        replace(node, compute_profile=edits.upgraded.get(node.name, node.compute_profile))
        for node in cluster.nodes
    )
    cluster = replace(cluster, nodes=nodes)
    for some in edits.added:
        for _number in range(some.count):
            cluster = _with_added(cluster, some)
    if edits.removed:
        cluster = cluster.without(edits.removed)
    for link in edits.links:
        cluster = _with_link(cluster, link)
    return replace(problem, cluster=cluster)


def carried_over(
    before: planner.Problem, placement: planner.Placement, after: planner.Problem
) -> planner.Placement:
    """The part of the placement that fits the changed problem; new nodes hold the layers that are
    served least.

    Each joins the component of those layers.
    """
    carried = planner.conform(after, placement, planner.PlacementRules())
    for node in after.cluster.nodes:
        if before.cluster.has_node(node.name):
            continue
        choices = (
            (sum(speeds[held.first : held.end]), held.first, component, held)
            for component, part in enumerate(carried.parts)
            for speeds in [planner.coverage_tokens_per_s(after, part)]
            for held in planner.longest_ranges(after, node.name)
        )
        best = min(choices, key=lambda one: one[:3], default=None)
        if best is not None:
            _, _, component, held = best
            carried = carried.with_node(node.name, held, component=component)
    return carried


def worth(
    problem: planner.Problem,
    placement: planner.Placement,
    *,
    partial_inference: bool,
    max_hops: int | None = None,
) -> Worth:
    """Estimated value of a placement under our runtime's policy. Raises PlannerError."""
    rules = planner.PlacementRules(max_hops=max_hops)
    trials = planner.Trials(
        problem, planner.PlanOptions(partial_inference=partial_inference, rules=rules)
    )
    trial = trials.estimated(placement, placer="what if")
    serves = trial.estimate.decode_tokens_per_s > 0
    prices = [problem.price_per_hour(name) for name in placement.layers]
    known = [price for price in prices if price is not None]
    return Worth(
        nodes_used=len(placement.layers),
        flow_tokens_per_s=trial.flow.value_tokens_per_s,
        upper_bound_tokens_per_s=upper_bound_tokens_per_s(problem),
        decode_tokens_per_s=trial.estimate.decode_tokens_per_s,
        ttft_s=trial.estimate.ttft_s if serves else None,
        tpot_s=trial.estimate.tpot_s if serves else None,
        requests_in_flight=trial.estimate.held,
        price_per_hour=sum(known) if len(known) == len(prices) else None,
    )


def _with_added(cluster: planner.Cluster, some: AddedNodes) -> planner.Cluster:
    """One node more; its named links are those of a node of its region, of its kind if there is."""
    number = next(number for number in count(1) if not cluster.has_node(f"new-{number}"))
    node = planner.Node(name=f"new-{number}", region=some.region, compute_profile=some.profile)
    neighbours = sorted(
        (other for other in cluster.nodes if other.region == some.region),
        key=lambda other: other.compute_profile != some.profile,
    )
    if not neighbours and cluster.coordinator_region != some.region:
        regions = sorted({other.region for other in cluster.nodes})
        raise planner.InvalidProblem(
            _("there is no region %(region)s; use one of: %(names)s")
            % {"region": repr(some.region), "names": ", ".join(regions)}
        )
    like = neighbours[0].name if neighbours else None
    links = [
        replace(link, source=node.name) if link.source == like else replace(link, target=node.name)
        for link in cluster.links
        if like in (link.source, link.target)
    ]
    return replace(cluster, nodes=(*cluster.nodes, node), links=(*cluster.links, *links))


def _with_link(cluster: planner.Cluster, link: planner.Link) -> planner.Cluster:
    ends = (link.source, link.target)
    if all(end == planner.COORDINATOR or cluster.has_node(end) for end in ends):
        return replace(cluster, links=(*_others(cluster.links, ends), link))
    regions = {node.region for node in cluster.nodes} | {cluster.coordinator_region}
    unknown = [end for end in ends if end not in regions]
    if unknown:
        raise planner.InvalidProblem(
            _(
                "link %(source)s -> %(target)s: %(unknown)s is neither a node nor a "
                "region beside the other end; name two nodes, %(coordinator)s and a "
                "node, or two regions"
            )
            % {
                "source": link.source,
                "target": link.target,
                "unknown": repr(unknown[0]),
                "coordinator": repr(planner.COORDINATOR),
            }
        )
    return replace(cluster, region_links=(*_others(cluster.region_links, ends), link))


def _others(links: tuple[planner.Link, ...], ends: tuple[str, str]) -> tuple[planner.Link, ...]:
    return tuple(link for link in links if (link.source, link.target) != ends)


def answer_what_if(plan: Plan, edits: Edits) -> dict[str, Worth]:
    """The plan's value before and after the edits. Takes milliseconds: no search.

    Raises InvalidProblem, also for what the changed problem lacks.
    """
    problem, stored = stored_problem(plan), stored_plan(plan)
    changed = edited(problem, edits)
    placed = {
        "before": (problem, stored.placement),
        "after": (changed, carried_over(problem, stored.placement, changed)),
    }
    return {
        when: worth(
            where,
            placement,
            partial_inference=stored.partial_inference,
            max_hops=stored.max_hops,
        )
        for when, (where, placement) in placed.items()
    }
