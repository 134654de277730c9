"""Forecasts on clusters drawn at random: what bounds them, and both engines alike."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_clusters import (
    POLICIES,
    mixed_lengths,
    random_case,
    with_fixed_times,
    with_shared_bandwidth,
)

from benchmarks.helix.offline_feeder import OfflineFeeder
from benchmarks.helix.python_engine import PythonEngine
from planner.routers.choice import ROUTER_NAMES
from planner.simulator.feeders import feeder_for
from planner.simulator.simulate import SimulationOptions, simulate
from planner.workload.arrivals import poisson, requests
from planner.workload.demand import Arrivals, Backlog
from tests.examples import examples


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 10**6), policy=st.sampled_from(POLICIES))
def test_the_compiled_engine_forecasts_what_the_engine_in_python_does(seed, policy):
    rng = random.Random(seed)
    problem, placement, weights, partial_inference = random_case(
        seed, kv_tokens=rng.choice([None, 320, 400])
    )
    kind, router = rng.randrange(3), rng.choice(ROUTER_NAMES)
    if rng.random() < 0.5:
        problem = with_shared_bandwidth(problem, seed)
    if rng.random() < 0.5:
        problem = with_fixed_times(problem, seed)

    def demand():
        endless = mixed_lengths(seed)
        if kind == 0:
            return Backlog(lengths=endless, prompts_in_flight=5)
        if kind == 1:
            return Backlog(lengths=endless)
        return Arrivals(requests=requests(poisson(rate_per_s=3.0, seed=seed), endless))

    compiled, in_python = (
        recorded(
            problem,
            placement=placement,
            routing_weights=weights,
            demand=demand(),
            policy=policy,
            partial_inference=partial_inference,
            router=router,
            options=SimulationOptions(
                warm_up_s=2.0,
                window_s=4.0,
                fixed_output_tokens=[None, 1][seed % 2],
            ),
            feeder_maker=OfflineFeeder if kind == 1 else feeder_for,
            **engine,
        )
        for engine in ({}, {"engine_maker": PythonEngine})
    )
    assert compiled == in_python


def most_decodes_per_s(problem, placement):
    """What the tables allow if every step of every node were the best one."""
    by_layer = [0.0] * problem.model.num_layers
    for name, held in placement.layers.items():
        times = problem.profile_of(name).layer_times
        least = times.least_decodes
        best = max(count / times.decode_s(max(count, least)) for count in range(1, 5000))
        for layer in range(held.first, held.end):
            by_layer[layer] += best / len(held)
    return min(by_layer)


def recorded(*arguments, **options):
    """The forecast and what became of each request."""
    records = []
    return simulate(*arguments, **options, on_request=records.append), records


def served(seed, policy, pairs, **case):
    """(problem, forecast) of requests that come fast and are all served."""
    problem, placement, weights, partial_inference = random_case(seed, **case)
    return problem, simulate(
        problem,
        placement=placement,
        routing_weights=weights,
        demand=Arrivals(requests=requests(poisson(rate_per_s=20.0, seed=seed), iter(pairs))),
        policy=policy,
        partial_inference=partial_inference,
        options=SimulationOptions(
            warm_up_s=0.0, window_s=1e6, fixed_output_tokens=1 if case else None
        ),
    )


@settings(max_examples=examples(60))
@given(
    seed=st.integers(0, 10**6),
    policy=st.sampled_from(POLICIES),
    case=st.sampled_from([{}, {"kv_tokens": 320}, {"kv_tokens": 500}]),
)
def test_nothing_is_used_beyond_its_capacity_and_no_token_is_lost(seed, policy, case):
    pairs = list(itertools.islice(mixed_lengths(seed), 60))
    problem, forecast = served(seed, policy, pairs, **case)
    seconds = forecast.window_s
    assert forecast.requests_finished == len(pairs)
    assert forecast.requests_failed == 0
    assert forecast.decode_tokens_per_s * seconds == pytest.approx(
        sum(pair.output_tokens for pair in pairs)
    )
    assert forecast.prompt_tokens_per_s * seconds == pytest.approx(
        sum(pair.prompt_tokens for pair in pairs)
    )
    assert forecast.itl.count == sum(pair.output_tokens - 1 for pair in pairs)
    assert forecast.ttft.count == forecast.e2e.count == len(pairs)
    for node in forecast.nodes.values():
        assert 0 <= node.utilisation <= 1 + 1e-9
        assert 0 <= node.kv_mean <= node.kv_peak <= 1
        assert 0 <= node.convoy <= 1 + 1e-9
    for link in forecast.links:
        bandwidth = problem.cluster.link_between(link.source, link.target).bandwidth_bytes_per_s
        assert 0 <= link.utilisation <= 1 + 1e-9
        assert link.bytes_per_s <= bandwidth * link.utilisation * (1 + 1e-5)


def test_little_kv_room_is_filled_and_taken_from_the_youngest_by_these_cases():
    """Those that bound it above mean little unless it is short."""
    found = [
        served(seed, POLICIES[seed % len(POLICIES)], pairs, kv_tokens=320)[1]
        for seed in range(16)
        for pairs in [list(itertools.islice(mixed_lengths(seed), 60))]
    ]
    assert sum(forecast.kv_peak > 0.9 for forecast in found) >= 8
    assert sum(forecast.requests_preempted > 0 for forecast in found) >= 8


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 10**6), policy=st.sampled_from(POLICIES))
def test_no_shared_bandwidth_carries_more_than_it_has(seed, policy):
    problem, placement, weights, partial_inference = random_case(seed)
    problem = with_shared_bandwidth(problem, seed)
    forecast = simulate(
        problem,
        placement=placement,
        routing_weights=weights,
        demand=Backlog(lengths=mixed_lengths(seed)),
        policy=policy,
        partial_inference=partial_inference,
        options=SimulationOptions(warm_up_s=0.0, window_s=20.0),
    )
    for shared in problem.cluster.shared:
        members = problem.cluster.members_of(shared)
        carried = 0.0
        for link in forecast.links:
            inside, outside = (link.source, link.target)
            if shared.direction == "ingress":
                inside, outside = outside, inside
            if inside in members and (shared.scope == "nic" or outside not in members):
                carried += link.bytes_per_s
        assert carried <= shared.bandwidth_bytes_per_s * (1 + 1e-9)


@settings(max_examples=examples(20))
@given(seed=st.integers(0, 10**6), policy=st.sampled_from(POLICIES))
def test_no_forecast_exceeds_what_the_tables_allow_at_perfect_batching(seed, policy):
    problem, placement, weights, partial_inference = random_case(seed)
    forecast = simulate(
        problem,
        placement=placement,
        routing_weights=weights,
        demand=Backlog(lengths=mixed_lengths(seed)),
        policy=policy,
        partial_inference=partial_inference,
        options=SimulationOptions(warm_up_s=5.0, window_s=20.0),
    )
    assert 0 < forecast.decode_tokens_per_s <= most_decodes_per_s(problem, placement)
