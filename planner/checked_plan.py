"""A placement made into a plan, or an error: no plan leaves the planner unchecked."""

from planner.balanced_flow import balanced_flow
from planner.domain.placement import Placement
from planner.domain.plan import Plan
from planner.domain.problem import Problem
from planner.flow_check import (
    FlowCheckFailed,
    check_flow,
    flow_value_by_second_method,
    nearly_equal,
)
from planner.max_flow import mean_hops, routing_weights

# A solver proves its bound to its own feasibility and integrality tolerances only.
_BOUND_RELATIVE_TOLERANCE = 1e-4


def checked_plan(
    problem: Problem,
    placement: Placement,
    *,
    partial_inference: bool,
    max_hops: int | None,
    upper_bound_tokens_per_s: float,
    placer: str,
    solver: str,
    stop_reason: str,
    elapsed_s: float,
) -> Plan:
    """The plan, its flow recomputed by a second method and held against the proven bound.

    The flow and hence the routing weights are the most even ones of that value. Raises
    InvalidPlacement and FlowCheckFailed.
    """
    flow = balanced_flow(problem, placement, partial_inference=partial_inference, max_hops=max_hops)
    check_flow(flow, problem=problem)
    second = flow_value_by_second_method(
        problem, placement, partial_inference=partial_inference, max_hops=max_hops
    )
    value = flow.value_tokens_per_s
    if not nearly_equal(value, second):
        raise FlowCheckFailed(
            f"augmenting paths find {value} tokens/s but a second method {second} for the same "
            "placement; they must be equal, so please report this problem"
        )
    if value > upper_bound_tokens_per_s * (1 + _BOUND_RELATIVE_TOLERANCE):
        raise FlowCheckFailed(
            f"the flow of {value} tokens/s exceeds the proven bound {upper_bound_tokens_per_s}; "
            "one of them is wrong, so please report this problem"
        )
    return Plan(
        problem_name=problem.name,
        model_name=problem.model.name,
        num_layers=problem.model.num_layers,
        partial_inference=partial_inference,
        placement=placement,
        flow=flow,
        upper_bound_tokens_per_s=max(upper_bound_tokens_per_s, value),
        hops=mean_hops(flow),
        routing_weights=routing_weights(flow),
        placer=placer,
        solver=solver,
        stop_reason=stop_reason,
        elapsed_s=elapsed_s,
        max_hops=max_hops,
    )
