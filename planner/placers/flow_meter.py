"""The exact max flow of placements under a search's options."""

from planner.domain.flow import Flow
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.flow_graph import FlowGraphs
from planner.max_flow import flow_value_tokens_per_s, max_flow
from planner.placers.base import SearchOptions


class FlowMeter:
    """Only the values, of many placements of one problem."""

    def __init__(self, problem: Problem, options: SearchOptions) -> None:
        self._problem = problem
        self._graphs = FlowGraphs(
            problem,
            partial_inference=options.partial_inference,
            max_hops=options.rules.max_hops,
        )

    def tokens_per_s(self, placement: Placement) -> float:
        """The max flow of a placement; raises InvalidPlacement."""
        return flow_value_tokens_per_s(self._problem, self._graphs.graph_of(placement))


def flow_under(options: SearchOptions, problem: Problem, placement: Placement) -> Flow:
    """The max flow with all that flows where; raises InvalidPlacement."""
    return max_flow(
        problem,
        placement,
        partial_inference=options.partial_inference,
        max_hops=options.rules.max_hops,
    )
