"""The mixed-integer model of a placement: Helix Tables 5 and 6, one function per constraint group.

Symbols are the paper's: node i holds layers [s_i, e_i) with e_i = s_i + sum_j j b_i^j, L is the
number of layers, T_j the speed of a node that holds j, S_uv the capacity of a link.

Flow is measured in units of U, a known upper bound on it, so it runs from 0 to 1 and a solver's
absolute tolerances mean the same on every cluster. No node and no link can pass more than U, so
speeds and capacities above it are cut to 1: they stand before 0/1 variables, and a link left at
10 Gb/s over two bytes a token would carry any flow on a sliver of such a variable.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from planner.capacity import (
    link_capacity_tokens_per_s,
    max_layers,
    shared_bytes_per_token,
    throughput_tokens_per_s,
)
from planner.domain.cluster import SINK, SOURCE
from planner.domain.flow import Flow
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.placers.solvers.base import MixedIntegerModel, Terms

Edge = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementVariables:
    """Table 5, as variable indices. `cond1`, `cond2` are empty without partial inference.

    `level` is not in the paper, and empty without a hop limit: h_i + 1 is how many stages a
    pipeline has at most when it leaves node i.
    """

    first_layer: Mapping[str, int]
    holds: Mapping[str, tuple[int, ...]]
    flow: Mapping[Edge, int]
    valid: Mapping[Edge, int]
    cond1: Mapping[Edge, int]
    cond2: Mapping[Edge, int]
    level: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementModel:
    """A model with the meaning of its variables.

    `speeds[i][j-1]` is T_j and `links[u, v]` is S_uv, both in flow units.
    """

    problem: Problem
    flow_unit_tokens_per_s: float
    model: MixedIntegerModel
    variables: PlacementVariables
    speeds: Mapping[str, tuple[float, ...]]
    links: Mapping[Edge, float]

    @property
    def num_layers(self) -> int:
        return self.problem.model.num_layers

    def placement_of(self, values: Sequence[float]) -> Placement:
        """The placement of an integer solution; its flow variables are not trusted."""
        layers: dict[str, LayerRange] = {}
        for node, column in self.variables.first_layer.items():
            held = self.variables.holds[node]
            count = 1 + max(range(len(held)), key=lambda index: values[held[index]])
            first = round(values[column])
            layers[node] = LayerRange(first=first, end=first + count)
        return Placement(layers=layers)

    def values_of(self, placement: Placement, flow: Flow) -> list[float]:
        """The complete solution that is `placement` with `flow` on it.

        A node that the placement leaves out must hold something here (sum_j b = 1): it gets layer 0
        and no flow. Every link that carries flow must be in the model.
        """
        values = [0.0] * self.model.num_variables
        for node, column in self.variables.first_layer.items():
            held = placement.layers.get(node, LayerRange(first=0, end=1))
            values[column] = held.first
            values[self.variables.holds[node][len(held) - 1]] = 1.0
        for edge_flow in flow.edges:
            if edge_flow.flow_tokens_per_s <= 0:
                continue
            edge = (edge_flow.source, edge_flow.target)
            values[self.variables.flow[edge]] = (
                edge_flow.flow_tokens_per_s / self.flow_unit_tokens_per_s
            )
            for switches in (self.variables.valid, self.variables.cond1, self.variables.cond2):
                if edge in switches:
                    values[switches[edge]] = 1.0
        for node, level in _levels(flow).items():
            if node in self.variables.level:
                values[self.variables.level[node]] = level
        return values


def build_placement_model(
    problem: Problem,
    *,
    node_links: Iterable[Edge],
    partial_inference: bool,
    upper_bound_tokens_per_s: float,
    rules: PlacementRules,
) -> PlacementModel:
    """The model over the coordinator's links and `node_links`, in units of the given bound U.

    Nodes whose memory holds no layer are left out. Of the rules, pins and the hop limit become
    constraints; the others are for `restricted_problem`.
    """
    unit = upper_bound_tokens_per_s if upper_bound_tokens_per_s > 0 else 1.0
    speeds = _speeds(problem, unit=unit)
    links = _link_capacities(problem, node_links, speeds=speeds, unit=unit)
    model = MixedIntegerModel()
    built = PlacementModel(
        problem=problem,
        flow_unit_tokens_per_s=unit,
        model=model,
        variables=_add_variables(
            model,
            speeds=speeds,
            links=links,
            num_layers=problem.model.num_layers,
            partial_inference=partial_inference,
            max_hops=rules.max_hops,
        ),
        speeds=speeds,
        links=links,
    )
    hold_one_range(built)
    conserve_flow(built)
    respect_inference_throughput(built)
    enter_at_first_layer(built)
    leave_at_last_layer(built)
    if partial_inference:
        continue_inside_range(built)
    else:
        continue_at_range_start(built)
    respect_transmission_throughput(built)
    share_the_work(built)
    hold_pinned_layers(built, rules.pinned)
    if rules.max_hops is not None:
        rise_along_pipelines(built, rules.max_hops)
    share_bandwidth(built)
    return built


def hold_one_range(built: PlacementModel) -> None:
    """Constraint 1, model placement: sum_j b_i^j = 1 and 0 <= s_i < L (bounds) and e_i <= L."""
    for node, held in built.variables.holds.items():
        built.model.add_equal([(1.0, column) for column in held], 1.0)
        built.model.add_at_most(_end_layer(built, node), built.num_layers)


def conserve_flow(built: PlacementModel) -> None:
    """Constraint 2, flow conservation: sum_u f_ui = sum_v f_iv."""
    inflow, outflow = _flow_columns(built)
    for node in built.speeds:
        terms = [(1.0, column) for column in inflow[node]]
        terms += [(-1.0, column) for column in outflow[node]]
        built.model.add_equal(terms, 0.0)


def respect_inference_throughput(built: PlacementModel) -> None:
    """Constraint 3, inference throughput: sum_u f_ui <= sum_j b_i^j T_j."""
    inflow, _ = _flow_columns(built)
    for node, speeds in built.speeds.items():
        terms = [(1.0, column) for column in inflow[node]]
        held = built.variables.holds[node]
        terms += [(-speed, column) for speed, column in zip(speeds, held, strict=True)]
        built.model.add_at_most(terms, 0.0)


def enter_at_first_layer(built: PlacementModel) -> None:
    """Constraint 4, validity from the coordinator: s_i <= L (1 - d_source,i)."""
    num_layers = built.num_layers
    for (source, target), valid in built.variables.valid.items():
        if source == SOURCE:
            first = built.variables.first_layer[target]
            built.model.add_at_most([(1.0, first), (num_layers, valid)], num_layers)


def leave_at_last_layer(built: PlacementModel) -> None:
    """Constraint 4, validity to the coordinator: L d_i,sink <= e_i."""
    for (source, target), valid in built.variables.valid.items():
        if target == SINK:
            terms = [(float(built.num_layers), valid), *_negated(_end_layer(built, source))]
            built.model.add_at_most(terms, 0.0)


def continue_inside_range(built: PlacementModel) -> None:
    """Constraint 4 with partial inference: d_ij only where s_j <= e_i < e_j.

    (L+1) (1 - cond1) >= s_j - e_i;  e_j - e_i >= 1 - (L+1) (1 - cond2);
    d_ij <= 0.5 cond1 + 0.5 cond2.
    """
    big = built.num_layers + 1
    for edge, cond1 in built.variables.cond1.items():
        source, target = edge
        cond2 = built.variables.cond2[edge]
        end_before = _end_layer(built, source)
        first_after = built.variables.first_layer[target]
        built.model.add_at_most([(1.0, first_after), *_negated(end_before), (big, cond1)], big)
        built.model.add_at_most(
            [*end_before, *_negated(_end_layer(built, target)), (big, cond2)], big - 1
        )
        built.model.add_at_most(
            [(1.0, built.variables.valid[edge]), (-0.5, cond1), (-0.5, cond2)], 0.0
        )


def continue_at_range_start(built: PlacementModel) -> None:
    """Constraint 4 without partial inference: d_ij only where e_i = s_j.

    L d_ij <= L + s_j - e_i;  L d_ij <= L - s_j + e_i.
    """
    num_layers = built.num_layers
    for edge, valid in built.variables.valid.items():
        source, target = edge
        if source == SOURCE or target == SINK:
            continue
        end_before = _end_layer(built, source)
        first_after = built.variables.first_layer[target]
        built.model.add_at_most([(num_layers, valid), (-1.0, first_after), *end_before], num_layers)
        built.model.add_at_most(
            [(num_layers, valid), (1.0, first_after), *_negated(end_before)], num_layers
        )


def respect_transmission_throughput(built: PlacementModel) -> None:
    """Constraint 5, transmission throughput: f_ij <= d_ij S_ij."""
    for edge, capacity in built.links.items():
        terms = [(1.0, built.variables.flow[edge]), (-capacity, built.variables.valid[edge])]
        built.model.add_at_most(terms, 0.0)


def share_the_work(built: PlacementModel) -> None:
    """Not in the paper: L sum_i f_source,i <= sum_i sum_j j T_j b_i^j.

    Every token takes L layers of work and node i does at most j T_j of it per second. Implied for
    integers; in the relaxation, where d is fractional, it is what keeps the bound near B0 (§4.5).
    """
    terms = [
        (float(built.num_layers), column)
        for (source, _), column in built.variables.flow.items()
        if source == SOURCE
    ]
    for node, speeds in built.speeds.items():
        for count, (speed, column) in enumerate(
            zip(speeds, built.variables.holds[node], strict=True), start=1
        ):
            terms.append((-count * speed, column))
    built.model.add_at_most(terms, 0.0)


def hold_pinned_layers(built: PlacementModel, pinned: Mapping[str, LayerRange]) -> None:
    """Not in the paper: s_i = first and b_i^j = 1 for the j layers of node i's pin."""
    for node, pin in pinned.items():
        built.model.add_equal([(1.0, built.variables.first_layer[node])], pin.first)
        built.model.add_equal([(1.0, built.variables.holds[node][len(pin) - 1])], 1.0)


def rise_along_pipelines(built: PlacementModel, max_hops: int) -> None:
    """Not in the paper, a hop limit M: h_j >= h_i + 1 - M (1 - d_ij); 0 <= h <= M - 1 (bounds).

    A valid connection leads to a higher level, so a pipeline has at most M stages.
    """
    for (source, target), valid in built.variables.valid.items():
        if source == SOURCE or target == SINK:
            continue
        levels = built.variables.level
        built.model.add_at_most(
            [(1.0, levels[source]), (-1.0, levels[target]), (float(max_hops), valid)], max_hops - 1
        )


def share_bandwidth(built: PlacementModel) -> None:
    """Not in the paper: sum of bytes_per_token f_uv <= bandwidth over what a share's members send.

    Divided by the largest bytes per token, and by U like every flow.
    """
    for shared in built.problem.cluster.shared:
        members = built.problem.cluster.members_of(shared)
        size_of = {
            edge: size
            for edge in built.links
            if (size := shared_bytes_per_token(built.problem, shared, *edge, members=members)) > 0
        }
        if size_of:
            largest = max(size_of.values())
            limit = shared.bandwidth_bytes_per_s / largest / built.flow_unit_tokens_per_s
            terms = [(size / largest, built.variables.flow[e]) for e, size in size_of.items()]
            built.model.add_at_most(terms, limit)


def _levels(flow: Flow) -> dict[str, int]:
    """For every node with flow, the most stages that a pipeline of the flow has before it."""
    levels: dict[str, int] = {}
    used = [
        (edge.source, edge.target)
        for edge in flow.edges
        if edge.flow_tokens_per_s > 0 and _joins_nodes((edge.source, edge.target))
    ]
    changed = True
    while changed:
        changed = False
        for source, target in used:
            level = levels.get(source, 0) + 1
            if level > levels.get(target, 0):
                levels[target] = level
                changed = True
    return levels


def _speeds(problem: Problem, *, unit: float) -> dict[str, tuple[float, ...]]:
    return {
        node.name: tuple(
            min(throughput_tokens_per_s(problem, node.name, count) / unit, 1.0)
            for count in range(1, max_layers(problem, node.name) + 1)
        )
        for node in problem.cluster.nodes
        if max_layers(problem, node.name) > 0
    }


def _link_capacities(
    problem: Problem,
    node_links: Iterable[Edge],
    *,
    speeds: Mapping[str, Sequence[float]],
    unit: float,
) -> dict[Edge, float]:
    """S_uv of every link that can carry flow, no more than either end can ever pass."""
    edges = [(SOURCE, node) for node in speeds] + [(node, SINK) for node in speeds]
    edges += [(u, v) for u, v in node_links if u in speeds and v in speeds]
    capacities: dict[Edge, float] = {}
    for source, target in edges:
        capacity = link_capacity_tokens_per_s(problem, source, target) / unit
        for end in (source, target):
            if end in speeds:
                capacity = min(capacity, max(speeds[end]))
        if capacity > 0:
            capacities[source, target] = capacity
    return capacities


def _add_variables(
    model: MixedIntegerModel,
    *,
    speeds: Mapping[str, Sequence[float]],
    links: Mapping[Edge, float],
    num_layers: int,
    partial_inference: bool,
    max_hops: int | None,
) -> PlacementVariables:
    conditional = [edge for edge in links if partial_inference and _joins_nodes(edge)]
    return PlacementVariables(
        first_layer={node: model.add_integer(upper=num_layers - 1) for node in speeds},
        holds={
            node: tuple(model.add_binary() for _ in node_speeds)
            for node, node_speeds in speeds.items()
        },
        flow={
            edge: model.add_real(upper=capacity, objective=1.0 if edge[0] == SOURCE else 0.0)
            for edge, capacity in links.items()
        },
        valid={edge: model.add_binary() for edge in links},
        cond1={edge: model.add_binary() for edge in conditional},
        cond2={edge: model.add_binary() for edge in conditional},
        level=({} if max_hops is None else {n: model.add_real(upper=max_hops - 1) for n in speeds}),
    )


def _joins_nodes(edge: Edge) -> bool:
    return edge[0] != SOURCE and edge[1] != SINK


def _end_layer(built: PlacementModel, node: str) -> list[tuple[float, int]]:
    """e_i = s_i + sum_j j b_i^j."""
    held = built.variables.holds[node]
    return [
        (1.0, built.variables.first_layer[node]),
        *((float(count), column) for count, column in enumerate(held, start=1)),
    ]


def _negated(terms: Terms) -> list[tuple[float, int]]:
    return [(-coefficient, column) for coefficient, column in terms]


def _flow_columns(built: PlacementModel) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """(inflow, outflow): the flow variables that enter and leave each node."""
    inflow: dict[str, list[int]] = {node: [] for node in built.speeds}
    outflow: dict[str, list[int]] = {node: [] for node in built.speeds}
    for (source, target), column in built.variables.flow.items():
        if target != SINK:
            inflow[target].append(column)
        if source != SOURCE:
            outflow[source].append(column)
    return inflow, outflow
