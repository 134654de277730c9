"""The constraints of the mixed-integer model: Helix Table 6, one function per constraint group.

Symbols are the paper's: node i holds layers [s_i, e_i) with e_i = s_i + sum_j j b_i^j, L is the
number of layers, T_j the speed of a node that holds j, S_uv the capacity of a link; flows, speeds
and capacities are in flow units (`milp_model`).
"""

from collections.abc import Mapping

from planner.capacity import shared_bytes_per_token
from planner.domain.cluster import SINK, SOURCE
from planner.domain.placement import LayerRange
from planner.placers.milp_variables import PlacementModel
from planner.placers.solvers.base import Terms


def hold_one_range(built: PlacementModel) -> None:
    """Constraint 1, model placement: sum_j b_i^j = 1 and 0 <= s_i < L (bounds) and e_i <= L."""
    for node, held in built.variables.holds.items():
        built.model.add_equal([(1.0, column) for column in held], 1.0)
        built.model.add_at_most(_end_layer(built, node), built.num_layers)


def leave_room_for_ends(built: PlacementModel) -> None:
    """Not in the paper: fewer layers where the embedding or the output head are held as well.

    With first_i = 1 where s_i = 0 and last_i = 1 where e_i = L: s_i + first_i >= 1;
    e_i - last_i <= L - 1; sum_j j b_i^j + (m - f) first_i <= m, m and f the most layers of the node
    in the middle and with the first layer; so for the last. Not b_i^L where both do not fit.
    """
    num_layers = built.num_layers
    for node, limits in built.limits.items():
        held = built.variables.holds[node]
        count = [(float(layers), column) for layers, column in enumerate(held, start=1)]
        if node in built.variables.holds_first:
            first = built.variables.holds_first[node]
            begins = built.variables.first_layer[node]
            built.model.add_at_most([(-1.0, begins), (-1.0, first)], -1.0)
            less = float(limits.middle - limits.first)
            built.model.add_at_most([*count, (less, first)], limits.middle)
        if node in built.variables.holds_last:
            last = built.variables.holds_last[node]
            built.model.add_at_most([*_end_layer(built, node), (-1.0, last)], num_layers - 1)
            less = float(limits.middle - limits.last)
            built.model.add_at_most([*count, (less, last)], limits.middle)
        if len(held) == num_layers > limits.both:
            built.model.add_equal([(1.0, held[-1])], 0.0)


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
