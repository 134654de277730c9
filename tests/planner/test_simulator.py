"""Forecasts: followed by hand where that is possible, bounded by the tables everywhere."""

import dataclasses
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_clusters import (
    ACTIVATION_BYTES,
    LATENCY_S,
    TOKEN_BYTES,
    cluster_problem,
    even_weights,
    placed,
    random_case,
    with_shared_bandwidth,
)

from planner.domain.cluster import Link, SharedBandwidth
from planner.domain.errors import InvalidPlacement
from planner.domain.layer_times import LayerTimes
from planner.domain.serving_policy import PUBLISHED_POLICY, RUNTIME_POLICY
from planner.routers.choice import ROUTER_NAMES
from planner.simulator.compiled.compiled_engine import is_compiled
from planner.simulator.python_engine import PythonEngine
from planner.simulator.simulate import InvalidSimulation, SimulationOptions, simulate
from planner.workload.arrivals import poisson, requests
from planner.workload.demand import Arrivals, Backlog, PublishedFeeder
from planner.workload.request import InvalidWorkload, Lengths, Request

PLAIN = dataclasses.replace(PUBLISHED_POLICY, published_batch_limits=False)
MEASURED = dataclasses.replace(
    RUNTIME_POLICY, decode_cap_divisor=None, decode_cap_floor=1, measured_micro_batches=6
)
POLICIES = (
    PUBLISHED_POLICY,
    PLAIN,
    dataclasses.replace(RUNTIME_POLICY, prompt_chunk_tokens=40, decode_cap_floor=2),
    dataclasses.replace(
        RUNTIME_POLICY, prompt_chunk_tokens=64, piece_bytes=900.0, starvation_limit=2
    ),
    dataclasses.replace(RUNTIME_POLICY, prompt_chunk_tokens=None, piece_bytes=None),
    dataclasses.replace(RUNTIME_POLICY, transmission="two_lanes", messages="per_request"),
    dataclasses.replace(
        RUNTIME_POLICY, transmission="just_in_time", piece_bytes=500.0, step_overhead_s=0.001
    ),
    dataclasses.replace(MEASURED, messages="per_request"),
)
NO_COPY = SimulationOptions(warm_up_s=0.0, window_s=1000.0, host_copy_s_per_byte=0.0)


def lengths(prompt_tokens, output_tokens):
    return Lengths(prompt_tokens=prompt_tokens, output_tokens=output_tokens)


def at(*times, prompt_tokens, output_tokens):
    pair = lengths(prompt_tokens, output_tokens)
    return Arrivals(requests=iter([Request(arrival_s=time, lengths=pair) for time in times]))


def mixed_lengths(seed):
    rng = random.Random(seed)
    while True:
        yield lengths(rng.randint(1, 250), rng.randint(1, 40))


def run(problem, placement, demand, *, policy=PLAIN, options=NO_COPY, **others):
    weights = even_weights(placement, num_layers=problem.model.num_layers, partial_inference=False)
    return simulate(
        problem,
        placement=placement,
        routing_weights=weights,
        demand=demand,
        policy=policy,
        partial_inference=False,
        options=options,
        **others,
    )


def within_a_bucket(seconds):
    """Percentiles are right to the width of their bucket."""
    return pytest.approx(seconds, rel=0.016)


def test_one_request_takes_the_time_of_its_links_steps_and_way_home():
    problem = cluster_problem([(0.1, 0.02), (0.3, 0.04)], num_layers=5)
    forecast = run(problem, placed((0, 2), (2, 5)), at(0.0, prompt_tokens=100, output_tokens=3))
    token_s = TOKEN_BYTES / 1e6 + LATENCY_S
    prompt_s = (
        (100 * TOKEN_BYTES / 1e6 + LATENCY_S)
        + 2 * 0.1
        + (100 * ACTIVATION_BYTES / 1e6 + LATENCY_S)
        + 3 * 0.3
        + token_s
    )
    # One decode is charged as two.
    decode_s = token_s + 2 * 0.012 + (ACTIVATION_BYTES / 1e6 + LATENCY_S) + 3 * 0.024 + token_s
    assert forecast.simulated_s == pytest.approx(prompt_s + 2 * decode_s)
    assert forecast.ttft.p50_s == within_a_bucket(prompt_s)
    assert forecast.itl.p50_s == forecast.tpot.p50_s == within_a_bucket(decode_s)
    assert forecast.e2e.p99_s == within_a_bucket(prompt_s + 2 * decode_s)
    assert forecast.itl.count == 2
    assert forecast.decode_tokens_per_s == pytest.approx(3 / forecast.window_s)
    assert forecast.nodes["n0"].utilisation == pytest.approx((0.2 + 2 * 0.024) / forecast.window_s)
    # KV of the prompt and of both decoded tokens, on all layers held.
    assert forecast.nodes["n1"].kv_peak == pytest.approx(102 * 3 / 10_000)


def with_links(problem, *links):
    """The same with these links instead of all others: (source, target, latency in seconds)."""
    named = tuple(
        Link(source=source, target=target, bandwidth_bytes_per_s=1e6, latency_s=latency_s)
        for source, target, latency_s in links
    )
    return dataclasses.replace(
        problem, cluster=dataclasses.replace(problem.cluster, region_links=(), links=named)
    )


def test_a_token_goes_round_without_the_coordinator_where_a_link_leads_back():
    problem = cluster_problem([(0.1, 0.02), (0.3, 0.04)], num_layers=5)
    far = (("coordinator", "n0", 0.2), ("n1", "coordinator", 0.2), ("n0", "n1", 0.01))
    back = ("n1", "n0", 0.03)

    def forecast(*links, return_path):
        return run(
            with_links(problem, *links),
            placed((0, 2), (2, 5)),
            at(0.0, prompt_tokens=100, output_tokens=4),
            policy=dataclasses.replace(PLAIN, return_path=return_path),
        )

    home_s = TOKEN_BYTES / 1e6 + 0.2
    prompt_s = (100 * TOKEN_BYTES / 1e6 + 0.2) + 0.2 + (100 * ACTIVATION_BYTES / 1e6 + 0.01) + 0.9
    step_s = 2 * 0.012 + (ACTIVATION_BYTES / 1e6 + 0.01) + 3 * 0.024
    direct = forecast(*far, back, return_path="first_stage")
    gap_s = TOKEN_BYTES / 1e6 + 0.03 + step_s
    assert direct.ttft.p50_s == within_a_bucket(prompt_s + home_s)
    assert direct.itl.p50_s == within_a_bucket(gap_s)
    assert direct.simulated_s == pytest.approx(prompt_s + 3 * gap_s + home_s)
    assert direct.nodes["n1"].kv_peak == pytest.approx(103 * 3 / 10_000)
    round_about = forecast(*far, back, return_path="coordinator")
    assert round_about.itl.p50_s == within_a_bucket(2 * home_s + step_s)
    assert forecast(*far, return_path="first_stage") == round_about


def test_a_node_that_is_first_and_last_stage_goes_on_at_once():
    problem = cluster_problem([(0.1, 0.02)], num_layers=2)
    forecast = run(
        problem,
        placed((0, 2)),
        at(0.0, prompt_tokens=100, output_tokens=5),
        policy=dataclasses.replace(PLAIN, return_path="first_stage"),
    )
    assert forecast.itl.p50_s == within_a_bucket(2 * 0.012)
    assert {(link.source, link.target) for link in forecast.links} == {
        ("coordinator", "n0"),
        ("n0", "coordinator"),
    }


def test_what_arrives_is_copied_to_the_device_before_the_step():
    problem = cluster_problem([(0.1, 0.02)], num_layers=2)
    arguments = (problem, placed((0, 2)))
    without, copied = (
        run(
            *arguments,
            at(0.0, prompt_tokens=100, output_tokens=1),
            options=dataclasses.replace(NO_COPY, host_copy_s_per_byte=per_byte),
        )
        for per_byte in (0.0, 1e-6)
    )
    assert copied.simulated_s - without.simulated_s == pytest.approx(100 * ACTIVATION_BYTES * 1e-6)


def test_requests_that_arrive_during_a_step_share_the_next_one():
    problem = cluster_problem([(1.0, 0.1)], num_layers=1)
    forecast = run(
        problem, placed((0, 1)), at(0.0, 0.1, 0.2, 0.3, prompt_tokens=100, output_tokens=1)
    )
    # One prompt alone, then three in one step of 3 s, instead of four steps of 1 s in a row.
    assert forecast.simulated_s == pytest.approx(4.0 + 2 * LATENCY_S, abs=1e-3)
    assert forecast.nodes["n0"].prompt_tokens_per_s * forecast.window_s == pytest.approx(400)
    assert forecast.e2e.p50_s > 3.5


def test_published_limits_and_chunks_bound_what_a_step_takes():
    problem = cluster_problem([(0.1, 0.01)], num_layers=1)
    placement = placed((0, 1))
    demand = [0.0] * 16
    limited = run(
        problem,
        placement,
        at(*demand, prompt_tokens=100, output_tokens=20),
        policy=PUBLISHED_POLICY,
    )
    free = run(problem, placement, at(*demand, prompt_tokens=100, output_tokens=20))
    assert limited.nodes["n0"].batch_decodes <= 4.0 < free.nodes["n0"].batch_decodes
    chunked = dataclasses.replace(RUNTIME_POLICY, prompt_chunk_tokens=30, decode_cap_divisor=None)
    pieces = run(problem, placement, at(0.0, prompt_tokens=100, output_tokens=1), policy=chunked)
    # 30, 30, 30 and 10 tokens; a step without decodes costs no less than two decodes.
    assert pieces.simulated_s == pytest.approx(3 * 0.03 + 0.01 + 2 * LATENCY_S, abs=1e-3)


def test_a_decode_cap_spreads_decodes_over_more_steps():
    problem = cluster_problem([(0.01, 0.01), (0.01, 0.01)], num_layers=2)
    placement = placed((0, 1), (1, 2))

    def with_cap(divisor):
        policy = dataclasses.replace(PLAIN, decode_cap_divisor=divisor, decode_cap_floor=1)
        return run(
            problem,
            placement,
            at(*[0.0] * 20, prompt_tokens=10, output_tokens=50),
            policy=policy,
        )

    capped, free = with_cap(4), with_cap(None)
    assert capped.nodes["n0"].batch_decodes <= 5.0 < free.nodes["n0"].batch_decodes
    assert capped.convoy < free.convoy <= 1.0


def test_a_measured_cap_splits_the_requests_into_as_many_batches_as_there_are_stages():
    """Steps take as long however many are in them, and links next to nothing."""
    problem = cluster_problem([(0.01, 0.01)] * 4, num_layers=4)
    flat = dataclasses.replace(
        problem,
        compute_profiles={
            name: dataclasses.replace(
                profile,
                layer_times=LayerTimes(
                    prompt=((100.0, 0.01),), decode=((2.0, 0.05), (100.0, 0.0501))
                ),
            )
            for name, profile in problem.compute_profiles.items()
        },
    )

    def forecast(policy):
        return run(
            flat,
            placed(*[(number, number + 1) for number in range(4)]),
            at(*[0.0] * 24, prompt_tokens=1, output_tokens=400),
            policy=policy,
            options=dataclasses.replace(NO_COPY, warm_up_s=10.0, window_s=20.0),
        )

    free = forecast(dataclasses.replace(MEASURED, measured_micro_batches=None))
    split = forecast(MEASURED)
    alone = forecast(dataclasses.replace(MEASURED, measured_micro_batches=1))
    assert alone == free
    assert free.batch_decodes > 20
    assert 4.0 <= split.batch_decodes <= 9.0
    assert split.utilisation_mean > 0.95 > free.utilisation_mean
    assert split.decode_tokens_per_s > free.decode_tokens_per_s


def decode_gap_beside_a_long_prompt(**changes):
    """The longest gap of a decoding request while another's prompt crosses the same link."""
    problem = cluster_problem([(0.001, 0.001), (0.001, 0.001)], num_layers=2)
    arrivals = [
        Request(arrival_s=0.0, lengths=lengths(10, 60)),
        Request(arrival_s=0.05, lengths=lengths(1000, 1)),
    ]
    forecast = run(
        problem,
        placed((0, 1), (1, 2)),
        Arrivals(requests=iter(arrivals)),
        policy=dataclasses.replace(PLAIN, **changes),
    )
    return forecast.itl.p99_s, forecast.ttft.p99_s


def test_decodes_wait_for_a_prompt_on_the_link_unless_they_may_overtake_its_pieces():
    fifo, _ = decode_gap_beside_a_long_prompt()
    # The prompt takes 1 s: longer than all else together, so few decodes fall into it.
    pieces, _ = decode_gap_beside_a_long_prompt(transmission="decode_first", piece_bytes=1000.0)
    lanes, _ = decode_gap_beside_a_long_prompt(transmission="two_lanes")
    just_in_time, _ = decode_gap_beside_a_long_prompt(
        transmission="just_in_time", piece_bytes=1000.0
    )
    assert fifo > 0.5
    assert max(pieces, lanes, just_in_time) < 0.03


def test_a_whole_prompt_holds_the_link_where_it_goes_in_one_piece():
    whole, _ = decode_gap_beside_a_long_prompt(transmission="decode_first", piece_bytes=None)
    assert whole > 0.5


def test_a_prompt_that_decodes_overtake_is_not_starved():
    """Twenty requests decode without pause over a link that they fill."""
    problem = cluster_problem([(1e-4, 1e-4), (1e-4, 1e-4)], num_layers=2)
    arrivals = [Request(arrival_s=0.0, lengths=lengths(1, 2000)) for _ in range(20)]
    arrivals.append(Request(arrival_s=1.0, lengths=lengths(200, 1)))

    def prompt_waits(limit):
        policy = dataclasses.replace(
            PLAIN, transmission="decode_first", piece_bytes=2000.0, starvation_limit=limit
        )
        forecast = run(
            problem,
            placed((0, 1), (1, 2)),
            Arrivals(requests=iter(arrivals)),
            policy=policy,
            options=dataclasses.replace(NO_COPY, window_s=8.0),
        )
        return forecast.ttft.count < 21 or forecast.ttft.p99_s > 3.0

    assert prompt_waits(None)
    assert not prompt_waits(4)


def test_a_request_that_enters_a_node_in_the_middle_joins_the_batch_there():
    """n0 runs layers 0 and 1; n1 holds 0 to 3 and is entered at 0 by one, at 2 by another."""
    problem = cluster_problem([(1.0, 0.1), (1.0, 0.1)], num_layers=4)
    placement = placed((0, 2), (0, 4))
    weights = {"source": {"n0": 1.0, "n1": 1.0}, "n0": {"n1": 1.0}, "n1": {"sink": 1.0}}
    forecast = simulate(
        problem,
        placement=placement,
        routing_weights=weights,
        demand=at(0.0, 0.0, prompt_tokens=100, output_tokens=1),
        policy=PLAIN,
        partial_inference=True,
        options=dataclasses.replace(NO_COPY, recorded_pipelines=2),
    )
    assert sorted(len(pipeline.stages) for pipeline in forecast.pipelines) == [1, 2]
    # Both run layers 0 and 1 apart in 2 s. n1 goes on alone with 2 and 3 for 2 s, for what n0 sends
    # takes 0.1 s to come; then it runs 2 and 3 for that one.
    assert forecast.simulated_s == pytest.approx(6.0, abs=0.02)
    assert forecast.nodes["n1"].utilisation == pytest.approx(6.0 / forecast.simulated_s, abs=0.01)


@pytest.mark.skipif(not is_compiled(), reason="the package was built without a C compiler")
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), policy=st.sampled_from(POLICIES))
def test_the_compiled_engine_forecasts_what_the_engine_in_python_does(seed, policy):
    problem, placement, weights, partial_inference = random_case(seed)
    rng = random.Random(seed)
    kind, router = rng.randrange(3), rng.choice(ROUTER_NAMES)
    if rng.random() < 0.5:
        problem = with_shared_bandwidth(problem, seed)

    def demand():
        endless = mixed_lengths(seed)
        if kind == 0:
            return Backlog(lengths=endless, prompts_in_flight=5)
        if kind == 1:
            return PublishedFeeder(lengths=endless)
        return Arrivals(requests=requests(poisson(rate_per_s=3.0, seed=seed), endless))

    compiled, in_python = (
        simulate(
            problem,
            placement=placement,
            routing_weights=weights,
            demand=demand(),
            policy=policy,
            partial_inference=partial_inference,
            router=router,
            options=SimulationOptions(warm_up_s=2.0, window_s=4.0, recorded_pipelines=1000),
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
        best = max(count / times.decode_s(max(count, 2)) for count in range(1, 5000))
        for layer in range(held.first, held.end):
            by_layer[layer] += best / len(held)
    return min(by_layer)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), policy=st.sampled_from(POLICIES))
def test_nothing_is_used_beyond_its_capacity_and_no_token_is_lost(seed, policy):
    problem, placement, weights, partial_inference = random_case(seed)
    pairs = list(itertools.islice(mixed_lengths(seed), 60))
    forecast = simulate(
        problem,
        placement=placement,
        routing_weights=weights,
        demand=Arrivals(requests=requests(poisson(rate_per_s=20.0, seed=seed), iter(pairs))),
        policy=policy,
        partial_inference=partial_inference,
        options=SimulationOptions(warm_up_s=0.0, window_s=1e6),
    )
    seconds = forecast.window_s
    assert forecast.requests_finished == len(pairs)
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


@settings(max_examples=60, deadline=None)
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


def prompts_over_one_card(*sizes, bandwidths, card_bytes_per_s, **changes):
    """Prompts of so many bytes leave the coordinator at once, each to a node of its own."""
    problem = cluster_problem([(1e-9, 1e-9)] * len(sizes), num_layers=1)
    names = [f"n{number}" for number in range(len(sizes))]
    links = [
        Link(source="coordinator", target=name, bandwidth_bytes_per_s=bandwidth, latency_s=0.0)
        for name, bandwidth in zip(names, bandwidths, strict=True)
    ]
    card = SharedBandwidth(
        name="card",
        members=("coordinator",),
        direction="egress",
        bandwidth_bytes_per_s=card_bytes_per_s,
        scope="nic",
    )
    cluster = dataclasses.replace(problem.cluster, links=tuple(links), shared=(card,))
    arrivals = [
        Request(arrival_s=0.0, lengths=lengths(int(size / TOKEN_BYTES), 1)) for size in sizes
    ]
    return run(
        dataclasses.replace(problem, cluster=cluster),
        placed(*[(0, 1)] * len(sizes)),
        Arrivals(requests=iter(arrivals)),
        policy=dataclasses.replace(PLAIN, **changes),
    )


@pytest.mark.parametrize("transmission", ["fifo", "decode_first", "two_lanes", "just_in_time"])
def test_links_share_a_bandwidth_evenly_and_go_faster_when_others_are_done(transmission):
    forecast = prompts_over_one_card(
        1000, 3000, bandwidths=(1e6, 1e6), card_bytes_per_s=1000.0, transmission=transmission
    )
    # Each has 500 bytes/s for 2 s; then the other has all of it for its last 2000 bytes.
    assert forecast.simulated_s == pytest.approx(4.0, abs=0.01)
    assert forecast.ttft.p50_s == within_a_bucket(2.001)


def test_what_a_slow_link_leaves_of_a_shared_bandwidth_goes_to_the_others():
    forecast = prompts_over_one_card(100, 1800, bandwidths=(100.0, 1e6), card_bytes_per_s=1000.0)
    # 100 and 900 bytes/s for 1 s, then 1000 for the 900 bytes left.
    assert forecast.simulated_s == pytest.approx(1.9, abs=0.01)


@settings(max_examples=20, deadline=None)
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


def test_a_full_component_does_not_hold_up_the_others():
    problem = cluster_problem([(0.01, 0.001), (0.01, 0.001)], num_layers=1, kv_token_layers=400)
    placement = placed((0, 1), (0, 1), components=(frozenset({"n0"}), frozenset({"n1"})))
    forecast = run(problem, placement, at(*[0.0] * 8, prompt_tokens=100, output_tokens=100))
    assert forecast.requests_finished == 8
    assert {name for name, node in forecast.nodes.items() if node.utilisation > 0} == {"n0", "n1"}
    assert forecast.queue.p99_s > 0


def test_kv_reservations_grow_with_answers_longer_than_predicted():
    """Ten tokens are predicted; with reservations that stay, KV use passes the capacity."""
    problem = cluster_problem([(0.001, 0.001)], num_layers=1, kv_token_layers=600)

    def peak(**changes):
        return run(
            problem,
            placed((0, 1)),
            Backlog(lengths=itertools.repeat(lengths(20, 300))),
            options=dataclasses.replace(NO_COPY, window_s=2.0, **changes),
        ).kv_peak

    assert peak(fixed_output_tokens=10) > 1.0
    assert peak() < peak(fixed_output_tokens=10)


def test_a_long_run_needs_no_more_request_numbers_than_run_at_once():
    numbers = set()

    class Watched(PythonEngine):
        def admit(self, **arguments):
            numbers.add(number := super().admit(**arguments))
            return number

    problem = cluster_problem([(0.001, 0.001)], num_layers=1, kv_token_layers=500)
    forecast = run(
        problem,
        placed((0, 1)),
        Backlog(lengths=itertools.repeat(lengths(50, 5))),
        options=dataclasses.replace(NO_COPY, window_s=4.0),
        engine_maker=Watched,
    )
    assert forecast.requests_finished > 100
    assert len(numbers) <= 10


def test_figures_are_those_of_the_window_without_the_warm_up():
    problem = cluster_problem([(0.01, 0.001)], num_layers=1)
    times = (*[0.0] * 5, *[50.0] * 3)
    forecast = run(
        problem,
        placed((0, 1)),
        at(*times, prompt_tokens=10, output_tokens=4),
        options=dataclasses.replace(NO_COPY, warm_up_s=40.0, window_s=30.0),
    )
    assert forecast.requests_finished == forecast.ttft.count == 3


def test_what_cannot_be_simulated_is_refused_with_the_reason():
    problem = cluster_problem([(0.01, 0.001), (0.01, 0.001)], num_layers=2, kv_token_layers=100)
    placement = placed((0, 1), (1, 2))
    with pytest.raises(InvalidWorkload, match="200 prompt and 10 predicted output tokens"):
        run(problem, placement, at(0.0, prompt_tokens=200, output_tokens=1))
    with pytest.raises(InvalidWorkload, match="arrives at 1 s after one at 2 s"):
        run(problem, placement, at(2.0, 1.0, prompt_tokens=1, output_tokens=1))
    with pytest.raises(InvalidSimulation, match="within the warm-up of 50 s"):
        run(
            problem,
            placement,
            at(0.0, prompt_tokens=1, output_tokens=1),
            options=dataclasses.replace(NO_COPY, warm_up_s=50.0),
        )
    with pytest.raises(InvalidPlacement, match="not a node"):
        run(problem, placed((0, 1), (1, 2), (0, 1)), at(0.0, prompt_tokens=1, output_tokens=1))
    unlinked = dataclasses.replace(
        problem, cluster=dataclasses.replace(problem.cluster, region_links=())
    )
    with pytest.raises(InvalidPlacement, match="no link"):
        run(unlinked, placement, at(0.0, prompt_tokens=1, output_tokens=1))


@pytest.mark.parametrize(
    "changes",
    [
        {"window_s": 0.0},
        {"window_s": float("inf")},
        {"warm_up_s": float("inf")},
        {"warm_up_s": -1.0},
        {"page_tokens": 0},
        {"fixed_output_tokens": 0},
        {"host_copy_s_per_byte": float("nan")},
        {"recorded_pipelines": -1},
    ],
)
def test_options_outside_their_range_are_refused(changes):
    with pytest.raises(InvalidSimulation, match=next(iter(changes))):
        SimulationOptions(**changes)
