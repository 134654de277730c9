"""The mixed-integer model of a placement: Helix Tables 5 and 6.

Flow is measured in units of U, a known upper bound on it, so it runs from 0 to 1 and a solver's
absolute tolerances mean the same on every cluster. No node and no link can pass more than U, so
speeds and capacities above it are cut to 1: they are factors of 0/1 variables, and a link left at
10 Gb/s over two bytes a token would carry any flow on a tiny fraction of such a variable.
"""

from collections.abc import Iterable, Mapping, Sequence

from planner.capacity import (
    LayerLimits,
    layer_limits,
    throughput_tokens_per_s,
)
from planner.domain.cluster import COORDINATOR, SINK, SOURCE
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.link_matrix import link_capacities_tokens_per_s
from planner.placers.milp_constraints import (
    conserve_flow,
    continue_at_range_start,
    continue_inside_range,
    enter_at_first_layer,
    hold_one_range,
    hold_pinned_layers,
    leave_at_last_layer,
    leave_room_for_ends,
    respect_inference_throughput,
    respect_transmission_throughput,
    rise_along_pipelines,
    share_bandwidth,
    share_the_work,
)
from planner.placers.milp_variables import (
    Edge,
    PlacementModel,
    PlacementVariables,
    joins_nodes,
    one_layer,
)
from planner.placers.solvers.base import MixedIntegerModel


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
    limits = _limits(problem)
    speeds = _speeds(problem, limits, unit=unit)
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
            limits=limits,
            num_layers=problem.model.num_layers,
            partial_inference=partial_inference,
            max_hops=rules.max_hops,
        ),
        speeds=speeds,
        links=links,
        limits=limits,
    )
    hold_one_range(built)
    leave_room_for_ends(built)
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


def _limits(problem: Problem) -> dict[str, LayerLimits]:
    """Layer limits of every node that can hold a layer somewhere."""
    limits = {node.name: layer_limits(problem, node.name) for node in problem.cluster.nodes}
    return {
        name: one
        for name, one in limits.items()
        if one_layer(one, num_layers=problem.model.num_layers) is not None
    }


def _speeds(
    problem: Problem, limits: Mapping[str, LayerLimits], *, unit: float
) -> dict[str, tuple[float, ...]]:
    return {
        name: tuple(
            min(throughput_tokens_per_s(problem, name, count) / unit, 1.0)
            for count in range(1, one.middle + 1)
        )
        for name, one in limits.items()
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
    place = {name: number for number, name in enumerate(speeds)} | {SOURCE: -1, SINK: -1}
    tokens_per_s = link_capacities_tokens_per_s(problem, [*speeds, COORDINATOR]).tolist()
    capacities: dict[Edge, float] = {}
    for source, target in edges:
        capacity = tokens_per_s[place[source]][place[target]] / unit
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
    limits: Mapping[str, LayerLimits],
    num_layers: int,
    partial_inference: bool,
    max_hops: int | None,
) -> PlacementVariables:
    conditional = [edge for edge in links if partial_inference and joins_nodes(edge)]
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
        holds_first={n: model.add_binary() for n in speeds if limits[n].first < limits[n].middle},
        holds_last={n: model.add_binary() for n in speeds if limits[n].last < limits[n].middle},
    )
