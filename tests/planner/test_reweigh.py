"""Weights that follow measured links: the flow of what links do, and no layer moved."""

import pytest
from tiny_problems import ACTIVATION_BYTES, one_hop_plan, placement, plan_by_hand, tiny_problem

from planner.domain.plan import Plan
from planner.domain.problem import Problem
from planner.max_flow import max_flow
from planner.reweigh import reweigh, with_rates
from planner.serialization import plan_from_dict, plan_to_dict


def two_ways() -> tuple[Problem, Plan]:
    """n0 feeds n1 and n2, each of which can do half of what n0 does."""
    problem = tiny_problem([[100.0], [50.0], [50.0]], num_layers=2)
    layers = placement(n0=(0, 1), n1=(1, 2), n2=(1, 2))
    return problem, plan_by_hand(problem, layers)


def test_weights_follow_a_link_that_does_less_and_go_back_with_it() -> None:
    problem, plan = two_ways()
    slow = reweigh(problem, plan, {("n0", "n2"): 10.0 * ACTIVATION_BYTES})
    assert slow.flow_tokens_per_s == pytest.approx(60.0)
    weights = slow.routing_weights["n0"]
    assert weights["n2"] / weights["n1"] == pytest.approx(10 / 50)
    again = reweigh(problem, plan, {("n0", "n2"): 1000.0 * ACTIVATION_BYTES})
    assert again.routing_weights == plan.routing_weights
    assert again.flow_tokens_per_s == plan.flow.value_tokens_per_s


def test_the_flow_is_that_of_a_problem_whose_links_had_been_so_from_the_start() -> None:
    problem, plan = two_ways()
    rates = {("n0", "n1"): 7.0 * ACTIVATION_BYTES, ("n0", "n2"): 20.0 * ACTIVATION_BYTES}
    flow = max_flow(with_rates(problem, rates), plan.placement, partial_inference=False)
    assert reweigh(problem, plan, rates).flow_tokens_per_s == flow.value_tokens_per_s == 27.0


def test_links_that_a_problem_does_not_have_are_left_out_and_latencies_stay() -> None:
    problem, _ = two_ways()
    other = with_rates(problem, {("n0", "n9"): 1.0, ("n0", "n1"): 5.0})
    assert other.cluster.link_between("n0", "n1").bandwidth_bytes_per_s == 5.0
    assert (
        other.cluster.link_between("n0", "n1").latency_s
        == problem.cluster.link_between("n0", "n1").latency_s
    )
    assert len(other.cluster.links) == len(problem.cluster.links) + 1


def test_weights_for_other_links_keep_the_hop_limit_that_the_plan_was_made_with() -> None:
    problem, plan = one_hop_plan()
    stored = plan_from_dict(plan_to_dict(plan))
    assert stored.max_hops == 1
    found = reweigh(problem, stored, {("coordinator", "n1"): 1e9})
    assert found.routing_weights == plan.routing_weights
    assert set(found.routing_weights["source"]) == {"n0"}
