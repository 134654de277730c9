"""The most even of all maximum flows.

Which of the many maximum flows a method returns changes what is served: a sparse one pairs nodes
into private chains, whose requests then travel together as convoys. Here every node of a placement
carries the same share of its capacity as far as the maximum flow allows, and what leaves a node
is spread over its successors by what they carry: f_uv = f_u f_v / F between whole stages. Where
links or shared bandwidth are too narrow for that, the flow is the nearest to it that fits.
"""

import numpy as np

from planner.domain.flow import Flow
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.even_flow import even_flow
from planner.flow_graph import build_flow_graph, gates_of
from planner.max_flow import flow_of, solved_flow
from planner.twins import merge_twins


def balanced_flow(
    problem: Problem,
    placement: Placement,
    *,
    partial_inference: bool,
    max_hops: int | None = None,
) -> Flow:
    """`max_flow` with the same value and minimum cut, but spread most evenly.

    Raises InvalidPlacement.
    """
    graph = build_flow_graph(
        problem, placement, partial_inference=partial_inference, max_hops=max_hops
    )
    gates = gates_of(problem, graph)
    maximum = solved_flow(graph, gates)
    flow_E = maximum.flow_tokens_per_s_E
    if maximum.value_tokens_per_s > 0:
        merged = merge_twins(graph, gates)
        maximum_M = np.bincount(merged.edge_of_E, flow_E, minlength=len(merged.graph.tails)).astype(
            np.float64
        )
        even_M = even_flow(merged.graph, merged.gates, maximum.value_tokens_per_s, maximum_M)
        flow_E = even_M[merged.edge_of_E] / merged.sizes_E
    return flow_of(graph, gates, maximum, flow_E)
