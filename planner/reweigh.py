"""Routing weights for links that do something else than was planned with; no layer moves."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from planner.balanced_flow import balanced_flow
from planner.domain.cluster import COORDINATOR, Link
from planner.domain.plan import Plan
from planner.domain.problem import Problem
from planner.max_flow import routing_weights

Ends = tuple[str, str]  # source, target; "coordinator" among them


@dataclass(frozen=True, slots=True, kw_only=True)
class Reweighed:
    """Flow of the plan's placement over the current links, and the weights for it."""

    flow_tokens_per_s: float
    routing_weights: Mapping[str, Mapping[str, float]]


def with_rates(problem: Problem, rates: Mapping[Ends, float]) -> Problem:
    """The problem with links of these bytes/s; pairs that it has no link for are left out."""
    cluster = problem.cluster
    links = {(link.source, link.target): link for link in cluster.links}
    for ends, rate in rates.items():
        if not all(name == COORDINATOR or cluster.has_node(name) for name in ends):
            continue
        known = cluster.link_between(*ends)
        if known is not None:
            links[ends] = Link(
                source=ends[0],
                target=ends[1],
                bandwidth_bytes_per_s=rate,
                latency_s=known.latency_s,
            )
    return replace(problem, cluster=replace(cluster, links=tuple(links.values())))


def reweigh(problem: Problem, plan: Plan, rates: Mapping[Ends, float]) -> Reweighed:
    """The most even maximum flow of the plan's placement over links of the measured bytes/s.

    The plan's hop limit holds.
    """
    flow = balanced_flow(
        with_rates(problem, rates),
        plan.placement,
        partial_inference=plan.partial_inference,
        max_hops=plan.max_hops,
    )
    return Reweighed(
        flow_tokens_per_s=flow.value_tokens_per_s, routing_weights=routing_weights(flow)
    )
