"""Why a plan is no faster, in words, and what one more unit of each resource would bring.

Values are what the options' objective makes large: the flow, or what is estimated to be served.
Two honest numbers per resource. `kept_tokens_per_s`: all nodes keep their layers and the added node
takes the best range there is. For the flow that is exact: every range is tried, or shown to be no
better; else it takes the range of another node.
Where several ranges of layers are as slow as the flow, as in a chain of even stages, one more node
brings nothing; then it is the fewest nodes of the kind that serve all these ranges.
`replanned_tokens_per_s`: what a search of the given time finds around the plan, so at least that
much is possible. For bandwidth no layers move.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from planner.capacity import coverage_tokens_per_s, fits, max_layers, throughput_tokens_per_s
from planner.domain.cluster import SOURCE
from planner.domain.flow import Flow, Price
from planner.domain.placement import LayerRange, Placement
from planner.domain.plan import Plan
from planner.domain.problem import Problem
from planner.feasibility import restricted_problem
from planner.larger_problems import with_a_twin, with_more_bandwidth, with_one_more_node
from planner.placers.base import CancelToken, NeverCancelled
from planner.placers.board import flow_under
from planner.plan_options import PlanOptions
from planner.planning import objective_of
from planner.replanning.compute_replan import replan
from planner.replanning.options import ReplanOptions

_TIGHT = 1 + 1e-6  # coverage as low as that times the flow limits it
_GAINS = 1e-9
_MOST_MORE_NODES = 8
_LISTED = 4
Sentence = tuple[str, Mapping[str, str | int]]  # a message and its %(name)s


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginalValue:
    """One more unit of `resource` ("+1 T4 in eu") and the values with and without it.

    `replanned_tokens_per_s` is None where nothing was searched.
    """

    resource: str
    before_tokens_per_s: float
    kept_tokens_per_s: float
    replanned_tokens_per_s: float | None

    @property
    def gain(self) -> float:
        """The best known value with it over the one without it, less 1; 0 if nothing was before."""
        if self.before_tokens_per_s <= 0:
            return 0.0
        best = max(self.kept_tokens_per_s, self.replanned_tokens_per_s or 0.0)
        return best / self.before_tokens_per_s - 1.0


def explain(problem: Problem, plan: Plan) -> tuple[str, ...]:
    """Sentences that name what limits the plan's flow."""
    return explain_min_cut(problem, plan.placement, plan.flow)


def gettext_noop(text: str) -> str:
    """The text as it is; its name has Django's programs take it into the catalogue."""
    return text


def explain_min_cut(problem: Problem, placement: Placement, flow: Flow) -> tuple[str, ...]:
    """A sentence for the flow, and one for each group of limits that make its minimum cut."""
    sentences = sentences_of_min_cut(problem, placement, flow)
    return tuple(message % values for message, values in sentences)


def sentences_of_min_cut(
    problem: Problem, placement: Placement, flow: Flow
) -> tuple[Sentence, ...]:
    """What `explain_min_cut` returns, in parts that can be translated."""
    cut = flow.min_cut
    price_of: Mapping[tuple[str, tuple[str, ...]], Price] = {
        (price.kind, price.name): price for price in cut.prices
    }
    if cut.nodes or cut.edges or cut.shared:
        first = gettext_noop(
            "The flow of %(flow)s tokens/s is all that these limits let through together; only "
            "more of them brings more without moving layers:"
        )
    else:
        first = gettext_noop("No request can pass: no chain of connected nodes holds every layer.")
    sentences: list[Sentence] = [(first, {"flow": f"{flow.value_tokens_per_s:.1f}"})]
    sentences.extend(_node_sentences(problem, placement, flow))
    sentences.extend(_tight_sentences(problem, placement, flow))
    sentences.extend(_link_sentences(problem, flow))
    for shared in flow.shared:
        if shared.name in cut.shared:
            worth = price_of["shared", (shared.name,)].price
            message = gettext_noop(
                "shared bandwidth %(name)s: %(rate)s MB/s, each MB/s more is worth at most "
                "%(worth)s tokens/s"
            )
            rate = f"{shared.bandwidth_bytes_per_s / 1e6:.1f}"
            values = {"name": shared.name, "rate": rate, "worth": f"{worth * 1e6:.1f}"}
            sentences.append((message, values))
    return tuple(sentences)


def marginal_values(
    problem: Problem,
    placement: Placement,
    *,
    options: PlanOptions,
    search_s: float = 0.0,
    cancel: CancelToken | None = None,
) -> tuple[MarginalValue, ...]:
    """Values of one more node of each kind and of 10 % more of each limiting bandwidth.

    `search_s` seconds of replanning for each kind of node; 0: kept layers only. Sorted, the most
    valuable first. The rules of `options` hold; an added node is never pinned or excluded.
    """
    problem = restricted_problem(problem, options.rules)
    options = replace(options, rules=options.rules.once_restricted)
    values = []
    flow = flow_under(options, problem, placement)
    before = _value(problem, placement, options)
    for resource, larger in with_one_more_node(problem):
        replanned = None
        if search_s > 0:
            found = replan(
                larger,
                placement,
                options=ReplanOptions(plan=options, time_limit_s=search_s),
                progress=lambda _: None,
                cancel=cancel or NeverCancelled(),
            )
            replanned = found.pareto[-1].value
        value = MarginalValue(
            resource=resource,
            before_tokens_per_s=before,
            kept_tokens_per_s=_best_with_added_node(
                larger, placement, options=options, before=before
            ),
            replanned_tokens_per_s=replanned,
        )
        values.append(value)
        if value.gain <= _GAINS:
            values.extend(
                _with_fewest_more_nodes(
                    problem, larger, placement, options=options, flow=flow, before=before
                )
            )
    for resource, wider in with_more_bandwidth(problem, flow):
        values.append(
            MarginalValue(
                resource=resource,
                before_tokens_per_s=before,
                kept_tokens_per_s=_value(wider, placement, options),
                replanned_tokens_per_s=None,
            )
        )
    return tuple(sorted(values, key=lambda value: (-value.gain, value.resource)))


def _value(problem: Problem, placement: Placement, options: PlanOptions) -> float:
    return objective_of(problem, options).score(placement).merit[0]


def _best_with_added_node(
    problem: Problem, placement: Placement, *, options: PlanOptions, before: float
) -> float:
    """The best value over ranges of the last node in any component, the others as placed."""
    name = problem.cluster.nodes[-1].name
    objective = objective_of(problem, options)
    ranges = _ranges_by_flow if options.objective == "flow" else _ranges_of_others
    best = before
    for most, component, held in ranges(problem, placement, before):
        if most <= best * (1 + 1e-9):
            break
        tried = placement.with_node(name, held, component=component)
        best = max(best, objective.score(tried).merit[0])
    return best


def _ranges_of_others(
    problem: Problem, placement: Placement, before: float
) -> list[tuple[float, int, LayerRange]]:
    """For every component, its nodes' layers and a range for the last node, without a bound."""
    name = problem.cluster.nodes[-1].name
    return [
        (math.inf, component, held)
        for component, part in enumerate(placement.parts)
        for held in sorted(set(part.layers.values()), key=lambda held: (held.first, held.end))
        if len(held) <= max_layers(problem, name) and fits(problem, name, held)
    ]


def _ranges_by_flow(
    problem: Problem, placement: Placement, before: float
) -> list[tuple[float, int, LayerRange]]:
    """(the most flow, component, range) of the last node where that is more than before.

    No component's flow exceeds its coverage: the ranges are in order of coverage, the most first.
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
    return sorted(candidates, key=lambda one: (-one[0], one[2].first))


def _with_fewest_more_nodes(
    problem: Problem,
    larger: Problem,
    placement: Placement,
    *,
    options: PlanOptions,
    flow: Flow,
    before: float,
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
    for component, tight in enumerate(_tight_layers(problem, placement, flow)):
        ranges = _windows(tight, longest=longest)
        if not 2 <= len(ranges) <= _MOST_MORE_NODES:
            continue
        if not all(fits(larger, added.name, held) for held in ranges):
            continue
        cluster, with_all = larger.cluster, placement
        for number, held in enumerate(ranges):
            if number > 0:
                cluster = with_a_twin(cluster, added)
            with_all = with_all.with_node(cluster.nodes[-1].name, held, component=component)
        kept = _value(replace(larger, cluster=cluster), with_all, options)
        value = MarginalValue(
            resource=f"+{len(ranges)} {added.compute_profile} in {added.region}, together",
            before_tokens_per_s=before,
            kept_tokens_per_s=kept,
            replanned_tokens_per_s=None,
        )
        if value.gain > _GAINS:
            values.append((len(ranges), value))
    if values:
        yield min(values, key=lambda pair: (pair[0], -pair[1].gain))[1]


def _tight_layers(problem: Problem, placement: Placement, flow: Flow) -> list[list[int]]:
    """For every component, the layers whose nodes compute no more than the component's flow."""
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


def _tight_sentences(problem: Problem, placement: Placement, flow: Flow) -> Iterator[Sentence]:
    """Sentences on all ranges of layers that limit the flow equally; a cut names only one."""
    if flow.value_tokens_per_s <= 0:
        return
    tight_layers = _tight_layers(problem, placement, flow)
    for part, tight in zip(placement.parts, tight_layers, strict=True):
        stages = _runs(part, tight)
        if len(stages) > 1:
            message = gettext_noop(
                "%(count)s ranges of layers are as tight as that, %(ranges)s: more for one of them "
                "alone brings nothing"
            )
            values: dict[str, str | int] = {
                "count": len(stages),
                "ranges": _listed([str(held) for held in stages]),
            }
            if part is not placement:
                message = gettext_noop(
                    "%(count)s ranges of layers of the component of %(node)s are as tight as that, "
                    "%(ranges)s: more for one of them alone brings nothing"
                )
                values["node"] = min(part.layers)
            yield message, values


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


def _node_sentences(problem: Problem, placement: Placement, flow: Flow) -> Iterator[Sentence]:
    groups: dict[tuple[str, str, LayerRange], list[str]] = {}
    for name in flow.min_cut.nodes:
        node = problem.cluster.node(name)
        key = (node.compute_profile, node.region, placement.layers[name])
        groups.setdefault(key, []).append(name)
    by_range = sorted(groups.items(), key=lambda item: (item[0][2].first, item[0][2].end, item[0]))
    for (profile, region, held), names in by_range:
        speed = sum(flow.nodes[name].capacity_tokens_per_s for name in names)
        message = gettext_noop(
            "compute of %(count)s x %(profile)s in %(region)s on layers %(layers)s: %(speed)s "
            "tokens/s (%(names)s)"
        )
        yield (
            message,
            {
                "count": len(names),
                "profile": profile,
                "region": region,
                "layers": str(held),
                "speed": f"{speed:.1f}",
                "names": _listed(names),
            },
        )


def _link_sentences(problem: Problem, flow: Flow) -> Iterator[Sentence]:
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
        message = gettext_noop(
            "%(count)s links from %(source)s to %(target)s: %(speed)s tokens/s (%(names)s)"
        )
        yield (
            message,
            {
                "count": len(links),
                "source": source,
                "target": target,
                "speed": f"{sum(capacity for _, capacity in links):.1f}",
                "names": _listed([name for name, _ in links]),
            },
        )


def _listed(names: list[str]) -> str:
    """The first names; the sentence says how many there are."""
    return ", ".join([*names[:_LISTED], *(["…"] if len(names) > _LISTED else [])])
