"""Backlogs that keep a number of requests in flight."""

import dataclasses
import itertools

import pytest
from simulated_clusters import cluster_problem, even_weights, placed

from planner.domain.serving_policy import PUBLISHED_POLICY
from planner.simulator.simulate import SimulationOptions, simulate
from planner.workload.demand import Backlog, prompts_in_flight
from planner.workload.request import InvalidWorkload, Lengths


@pytest.mark.parametrize("limit", [1, 3])
def test_a_backlog_keeps_as_many_requests_in_flight_as_it_is_told(limit):
    placement = placed((0, 2))
    forecast = simulate(
        cluster_problem([(0.01, 0.002)], num_layers=2),
        placement=placement,
        routing_weights=even_weights(placement, num_layers=2, partial_inference=False),
        demand=Backlog(
            lengths=itertools.repeat(Lengths(prompt_tokens=50, output_tokens=5)),
            requests_in_flight=limit,
        ),
        policy=dataclasses.replace(PUBLISHED_POLICY, published_batch_limits=False),
        partial_inference=False,
        options=SimulationOptions(warm_up_s=1.0, window_s=10.0),
    )
    assert forecast.requests_running == pytest.approx(limit)


def test_slow_prompts_of_one_component_do_not_keep_another_waiting():
    placement = placed((0, 1), (0, 1), components=(frozenset({"n0"}), frozenset({"n1"})))
    forecast = simulate(
        cluster_problem([(0.001, 0.002), (1.0, 0.002)], num_layers=1),
        placement=placement,
        routing_weights=even_weights(placement, num_layers=1, partial_inference=False),
        demand=Backlog(
            lengths=itertools.repeat(Lengths(prompt_tokens=50, output_tokens=5)),
            prompts_in_flight=1,
        ),
        policy=dataclasses.replace(PUBLISHED_POLICY, published_batch_limits=False),
        partial_inference=False,
        options=SimulationOptions(warm_up_s=5.0, window_s=30.0),
    )
    # Both have work but while messages are under way: neither waits for a prompt of the other.
    assert min(node.utilisation for node in forecast.nodes.values()) > 0.7


def test_a_backlog_of_no_stated_limit_lets_in_as_many_prompts_as_estimates_suppose():
    placement = placed(*[(0, 1)] * 50)

    def served(demand):
        return simulate(
            cluster_problem([(0.01, 0.002)] * 50, num_layers=1),
            placement=placement,
            routing_weights=even_weights(placement, num_layers=1, partial_inference=False),
            demand=demand,
            policy=PUBLISHED_POLICY,
            partial_inference=False,
            options=SimulationOptions(warm_up_s=0.2, window_s=1.0),
        )

    lengths = Lengths(prompt_tokens=50, output_tokens=5)
    by_default = served(Backlog(lengths=itertools.repeat(lengths)))
    assert prompts_in_flight(4) == 20
    assert prompts_in_flight(50) == 25
    for limit in (20, 25):
        stated = Backlog(lengths=itertools.repeat(lengths), prompts_in_flight=limit)
        assert (served(stated) == by_default) == (limit == 25)


@pytest.mark.parametrize("key", ["prompts_in_flight", "requests_in_flight"])
def test_a_backlog_of_no_requests_is_refused(key):
    with pytest.raises(InvalidWorkload, match=f"{key} is 0"):
        Backlog(lengths=iter(()), **{key: 0})
