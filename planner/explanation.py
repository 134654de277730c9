"""Why a plan is no faster, in words, and what one more unit of each resource would bring.

Two honest numbers per resource. `kept_tokens_per_s`: all nodes keep their layers and the added node
takes the best range there is, which is exact: every range is tried, or shown to be no better.
Where several ranges of layers are as slow as the flow, as in a chain of even stages, one more node
brings nothing; then it is the fewest nodes of the kind that serve all these ranges.
`replanned_tokens_per_s`: what a search of the given time finds around the plan, so at least that
much is possible. For bandwidth nobody moves, and the flow is solved again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from planner.capacity import coverage_tokens_per_s, fits, max_layers, throughput_tokens_per_s
from planner.domain.cluster import SOURCE, Cluster, Link, Node, free_name
from planner.domain.flow import Flow, Price
from planner.domain.placement import LayerRange, Placement
from planner.domain.plan import Plan
from planner.domain.problem import Problem
from planner.feasibility import restricted_problem
from planner.placers.base import CancelToken, NeverCancelled
from planner.placers.flow_meter import flow_under
from planner.plan_options import PlanOptions
from planner.replanning import ReplanOptions, replan

ADDED_NODE = "added-node"
_MORE_BANDWIDTH = 1.1
_TIGHT = 1 + 1e-6  # coverage as low as that times the flow limits it
_GAINS = 1e-9
_MOST_MORE_NODES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginalValue:
    """One more unit of `resource` ("+1 T4 in eu") and the flows with and without it.

    `replanned_tokens_per_s` is None where nothing was searched.
    """

    resource: str
    before_tokens_per_s: float
    kept_tokens_per_s: float
    replanned_tokens_per_s: float | None

    @property
    def gain(self) -> float:
        """The best known flow with it over the flow without it, less 1; 0 without flow before."""
        if self.before_tokens_per_s <= 0:
            return 0.0
        best = max(self.kept_tokens_per_s, self.replanned_tokens_per_s or 0.0)
        return best / self.before_tokens_per_s - 1.0


def explain(problem: Problem, plan: Plan) -> tuple[str, ...]:
    """Sentences that name what limits the plan's flow."""
    return explain_min_cut(problem, plan.placement, plan.flow)


def explain_min_cut(problem: Problem, placement: Placement, flow: Flow) -> tuple[str, ...]:
    """A sentence for the flow, and one for each group of limits that make its minimum cut."""
    cut = flow.min_cut
    price_of: Mapping[tuple[str, tuple[str, ...]], Price] = {
        (price.kind, price.name): price for price in cut.prices
    }
    sentences = [
        f"The flow of {flow.value_tokens_per_s:.1f} tokens/s is all that these limits let through "
        "together; only more of them brings more without moving layers:"
        if cut.nodes or cut.edges or cut.shared
        else "No request can pass: no chain of connected nodes holds every layer."
    ]
    sentences.extend(_node_sentences(problem, placement, flow))
    sentences.extend(_tight_sentences(problem, placement, flow))
    sentences.extend(_link_sentences(problem, flow))
    for shared in flow.shared:
        if shared.name in cut.shared:
            worth = price_of["shared", (shared.name,)].price
            sentences.append(
                f"shared bandwidth {shared.name}: {shared.bandwidth_bytes_per_s / 1e6:.1f} MB/s, "
                f"each MB/s more is worth at most {worth * 1e6:.1f} tokens/s"
            )
    return tuple(sentences)


def marginal_values(
    problem: Problem,
    placement: Placement,
    *,
    options: PlanOptions,
    search_s: float = 0.0,
    cancel: CancelToken | None = None,
) -> tuple[MarginalValue, ...]:
    """What one more node of each kind and 10 % more of each limiting bandwidth would bring.

    `search_s` seconds of replanning for each kind of node; 0: kept layers only. Sorted, the most
    valuable first. The rules of `options` hold; an added node is never pinned or excluded.
    """
    problem = restricted_problem(problem, options.rules)
    options = replace(options, rules=options.rules.once_restricted)
    values = []
    before = flow_under(options.search_options, problem, placement)
    for resource, larger in with_one_more_node(problem):
        replanned = None
        if search_s > 0:
            found = replan(
                larger,
                placement,
                options=ReplanOptions(plan=options.for_flow, time_limit_s=search_s),
                progress=lambda _: None,
                cancel=cancel or NeverCancelled(),
            )
            replanned = found.chosen.flow_tokens_per_s
        value = MarginalValue(
            resource=resource,
            before_tokens_per_s=before.value_tokens_per_s,
            kept_tokens_per_s=_best_with_added_node(
                larger, placement, options=options, before=before.value_tokens_per_s
            ),
            replanned_tokens_per_s=replanned,
        )
        values.append(value)
        if value.gain <= _GAINS:
            values.extend(
                _with_fewest_more_nodes(problem, larger, placement, options=options, before=before)
            )
    for resource, wider in with_more_bandwidth(problem, before):
        values.append(
            MarginalValue(
                resource=resource,
                before_tokens_per_s=before.value_tokens_per_s,
                kept_tokens_per_s=flow_under(
                    options.search_options, wider, placement
                ).value_tokens_per_s,
                replanned_tokens_per_s=None,
            )
        )
    return tuple(sorted(values, key=lambda value: (-value.gain, value.resource)))


def with_one_more_node(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """("+1 PROFILE in REGION", the problem with that node) for every kind that the cluster has.

    The added node has the links of the first node of its kind, and a network card of its own. The
    two are linked as the first is with another node of its region.
    """
    seen = set()
    for node in problem.cluster.nodes:
        kind = (node.compute_profile, node.region)
        if kind in seen or max_layers(problem, node.name) == 0:
            continue
        seen.add(kind)
        cluster = _with_a_twin(problem.cluster, node)
        yield f"+1 {kind[0]} in {kind[1]}", replace(problem, cluster=cluster)


def with_more_bandwidth(problem: Problem, flow: Flow) -> Iterator[tuple[str, Problem]]:
    """("+10 % ...", the problem with it) for every bandwidth in the flow's minimum cut.

    A link that only its regions define is widened together with all between these regions.
    """
    cluster = problem.cluster
    named = {(link.source, link.target) for link in cluster.links}
    ends_of_cut = [
        tuple("coordinator" if end in ("source", "sink") else end for end in edge)
        for edge in flow.min_cut.edges
    ]
    for source, target in sorted({(s, t) for s, t in ends_of_cut if (s, t) in named}):
        links = tuple(
            _wider(link) if (link.source, link.target) == (source, target) else link
            for link in cluster.links
        )
        yield (
            f"+10 % of link {source} -> {target}",
            replace(problem, cluster=replace(cluster, links=links)),
        )
    pairs = {
        (cluster.region_of(s), cluster.region_of(t)) for s, t in ends_of_cut if (s, t) not in named
    }
    for source, target in sorted(pairs):
        links = tuple(
            _wider(link) if (link.source, link.target) == (source, target) else link
            for link in cluster.region_links
        )
        yield (
            f"+10 % of every link {source} -> {target}",
            replace(problem, cluster=replace(cluster, region_links=links)),
        )
    for name in flow.min_cut.shared:
        shared = tuple(
            replace(share, bandwidth_bytes_per_s=share.bandwidth_bytes_per_s * _MORE_BANDWIDTH)
            if share.name == name
            else share
            for share in cluster.shared
        )
        yield (
            f"+10 % of shared bandwidth {name}",
            replace(problem, cluster=replace(cluster, shared=shared)),
        )


def _wider(link: Link) -> Link:
    return replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * _MORE_BANDWIDTH)


def _with_a_twin(cluster: Cluster, node: Node) -> Cluster:
    twin = replace(node, name=free_name(ADDED_NODE, {one.name for one in cluster.nodes}))

    def renamed(old: str, end: str) -> str:
        return twin.name if end == old else end

    twin_links = [
        replace(
            link, source=renamed(node.name, link.source), target=renamed(node.name, link.target)
        )
        for link in cluster.links
        if node.name in (link.source, link.target)
    ]
    near = next(
        (n.name for n in cluster.nodes if n.region == node.region and n.name != node.name), None
    )
    if near is not None:
        twin_links += [
            replace(link, source=renamed(near, link.source), target=renamed(near, link.target))
            for link in cluster.links
            if {link.source, link.target} == {node.name, near}
        ]
    shared = []
    for share in cluster.shared:
        if node.name not in share.members:
            shared.append(share)
        elif share.members == (node.name,):
            name = free_name(share.name, {one.name for one in (*cluster.shared, *shared)})
            shared += [share, replace(share, name=name, members=(twin.name,))]
        else:
            shared.append(replace(share, members=(*share.members, twin.name)))
    return replace(
        cluster,
        nodes=(*cluster.nodes, twin),
        links=(*cluster.links, *twin_links),
        shared=tuple(shared),
    )


def _best_with_added_node(
    problem: Problem, placement: Placement, *, options: PlanOptions, before: float
) -> float:
    """The best max flow over all ranges of the last node in any component, the others as placed.

    No component's flow exceeds its coverage, so ranges are tried from the most coverage down, until
    no other can be better than the best found.
    """
    name = problem.cluster.nodes[-1].name
    num_layers = problem.model.num_layers
    coverages = [coverage_tokens_per_s(problem, part) for part in placement.parts]
    total = sum(min(coverage) for coverage in coverages)
    candidates = []
    for component, coverage in enumerate(coverages):
        others = total - min(coverage)
        for length in range(1, max_layers(problem, name) + 1):
            speed = throughput_tokens_per_s(problem, name, length)
            for first in range(num_layers - length + 1):
                end = first + length
                if not fits(problem, name, LayerRange(first=first, end=end)):
                    continue
                rest = min([*coverage[:first], *coverage[end:]], default=float("inf"))
                most = others + min(rest, min(coverage[first:end]) + speed)
                if most > before:
                    candidates.append((most, component, LayerRange(first=first, end=end)))
    best = before
    for most, component, held in sorted(candidates, key=lambda one: (-one[0], one[2].first)):
        if most <= best * (1 + 1e-9):
            break
        tried = placement.with_node(name, held, component=component)
        best = max(best, flow_under(options.search_options, problem, tried).value_tokens_per_s)
    return best


def _with_fewest_more_nodes(
    problem: Problem, larger: Problem, placement: Placement, *, options: PlanOptions, before: Flow
) -> Iterator[MarginalValue]:
    """Two or more nodes of the kind that `larger` has one more of, if as many bring anything.

    They serve all tight ranges of the component that needs the fewest, each no more layers than it
    must. Of several such components the one that gains most.
    """
    added = larger.cluster.nodes[-1]
    longest = max(
        (
            layers
            for layers in range(1, max_layers(larger, added.name) + 1)
            if throughput_tokens_per_s(larger, added.name, layers) > 0
        ),
        default=0,
    )
    values = []
    for component, tight in enumerate(_tight_layers(problem, placement, before)):
        ranges = _windows(tight, longest=longest)
        if not 2 <= len(ranges) <= _MOST_MORE_NODES:
            continue
        if not all(fits(larger, added.name, held) for held in ranges):
            continue
        cluster, with_all = larger.cluster, placement
        for number, held in enumerate(ranges):
            if number > 0:
                cluster = _with_a_twin(cluster, added)
            with_all = with_all.with_node(cluster.nodes[-1].name, held, component=component)
        kept = flow_under(options.search_options, replace(larger, cluster=cluster), with_all)
        value = MarginalValue(
            resource=f"+{len(ranges)} {added.compute_profile} in {added.region}, together",
            before_tokens_per_s=before.value_tokens_per_s,
            kept_tokens_per_s=kept.value_tokens_per_s,
            replanned_tokens_per_s=None,
        )
        if value.gain > _GAINS:
            values.append((len(ranges), value))
    if values:
        yield min(values, key=lambda pair: (pair[0], -pair[1].gain))[1]


def _tight_layers(problem: Problem, placement: Placement, flow: Flow) -> list[list[int]]:
    """Of every component the layers whose nodes compute no more than the component's flow."""
    enters = {edge.target: edge.flow_tokens_per_s for edge in flow.edges if edge.source == SOURCE}
    tight = []
    for part in placement.parts:
        most = sum(enters.get(name, 0.0) for name in part.layers) * _TIGHT
        coverage = coverage_tokens_per_s(problem, part)
        tight.append([layer for layer, speed in enumerate(coverage) if speed <= most])
    return tight


def _windows(layers: list[int], *, longest: int) -> list[LayerRange]:
    """The fewest ranges of at most `longest` layers that hold all of these."""
    windows: list[LayerRange] = []
    for layer in layers if longest > 0 else ():
        if windows and layer < windows[-1].first + longest:
            windows[-1] = LayerRange(first=windows[-1].first, end=layer + 1)
        else:
            windows.append(LayerRange(first=layer, end=layer + 1))
    return windows


def _tight_sentences(problem: Problem, placement: Placement, flow: Flow) -> Iterator[str]:
    """Where several ranges of layers limit the flow alike, though a cut names one of them only."""
    if flow.value_tokens_per_s <= 0:
        return
    tight_layers = _tight_layers(problem, placement, flow)
    for part, tight in zip(placement.parts, tight_layers, strict=True):
        stages = _runs(part, tight)
        if len(stages) > 1:
            among = "" if part is placement else f" of the component of {min(part.layers)}"
            yield (
                f"{len(stages)} ranges of layers{among} are as tight as that, "
                f"{_listed([str(held) for held in stages])}: more for one of them alone brings "
                "nothing"
            )


def _runs(placement: Placement, layers: list[int]) -> list[LayerRange]:
    """These layers as ranges that the same nodes hold."""
    runs: list[tuple[LayerRange, frozenset[str]]] = []
    for layer in layers:
        holders = frozenset(
            name for name, held in placement.layers.items() if held.first <= layer < held.end
        )
        if runs and runs[-1][0].end == layer and runs[-1][1] == holders:
            runs[-1] = (LayerRange(first=runs[-1][0].first, end=layer + 1), holders)
        else:
            runs.append((LayerRange(first=layer, end=layer + 1), holders))
    return [held for held, _ in runs]


def _node_sentences(problem: Problem, placement: Placement, flow: Flow) -> Iterator[str]:
    groups: dict[tuple[str, str, LayerRange], list[str]] = {}
    for name in flow.min_cut.nodes:
        node = problem.cluster.node(name)
        key = (node.compute_profile, node.region, placement.layers[name])
        groups.setdefault(key, []).append(name)
    by_range = sorted(groups.items(), key=lambda item: (item[0][2].first, item[0][2].end, item[0]))
    for (profile, region, held), names in by_range:
        speed = sum(flow.nodes[name].capacity_tokens_per_s for name in names)
        yield (
            f"compute of {len(names)} x {profile} in {region} on layers {held}: "
            f"{speed:.1f} tokens/s ({_listed(names)})"
        )


def _link_sentences(problem: Problem, flow: Flow) -> Iterator[str]:
    cut = set(flow.min_cut.edges)
    groups: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for edge in flow.edges:
        if (edge.source, edge.target) not in cut:
            continue
        regions = [
            problem.cluster.coordinator_region
            if end in ("source", "sink")
            else problem.cluster.region_of(end)
            for end in (edge.source, edge.target)
        ]
        groups.setdefault((regions[0], regions[1]), []).append(
            (f"{edge.source} -> {edge.target}", edge.capacity_tokens_per_s)
        )
    for (source, target), links in sorted(groups.items()):
        yield (
            f"{len(links)} links from {source} to {target}: "
            f"{sum(capacity for _, capacity in links):.1f} tokens/s "
            f"({_listed([name for name, _ in links])})"
        )


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"
