"""Forecasts of steps and stages, followed by hand."""

import dataclasses

import pytest
from simulated_clusters import (
    ACTIVATION_BYTES,
    LATENCY_S,
    MEASURED,
    NO_COPY,
    PLAIN,
    TOKEN_BYTES,
    at,
    cluster_problem,
    placed,
    run,
    within_a_bucket,
)

from planner.domain.cluster import Link
from planner.domain.layer_times import LayerTimes
from planner.domain.serving_policy import PUBLISHED_POLICY, RUNTIME_POLICY
from planner.simulator.simulate import simulate


def timed(problem, **fixed):
    """The same, with these of its profiles' layer times."""
    profiles = {
        name: dataclasses.replace(
            profile, layer_times=dataclasses.replace(profile.layer_times, **fixed)
        )
        for name, profile in problem.compute_profiles.items()
    }
    return dataclasses.replace(problem, compute_profiles=profiles)


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
    # Pages of 16 tokens for the prompt and both decoded tokens, on all layers held.
    assert forecast.nodes["n1"].kv_peak == pytest.approx(7 * 16 * 3 / 10_000)


def test_a_step_takes_its_own_time_beside_that_of_its_layers_however_many_they_are():
    problem = cluster_problem([(0.1, 0.02), (0.3, 0.04)], num_layers=5)
    slower = timed(problem, prompt_step_s=0.5, decode_step_s=0.05)
    placement = placed((0, 2), (2, 5))
    before_s, after_s = (
        run(each, placement, at(0.0, prompt_tokens=100, output_tokens=3)).simulated_s
        for each in (problem, slower)
    )
    # Two nodes, with 100 tokens the prompt's whole share, and two decodes.
    assert after_s - before_s == pytest.approx(2 * 0.5 + 2 * 2 * 0.05)


def test_the_head_is_run_once_a_token_and_handling_at_every_stage():
    problem = cluster_problem([(0.1, 0.02), (0.3, 0.04)], num_layers=5)
    placement = placed((0, 2), (2, 5))

    def seconds(problem):
        demand = at(0.0, prompt_tokens=100, output_tokens=3)
        return run(problem, placement, demand).simulated_s

    plain_s = seconds(problem)
    assert seconds(timed(problem, head_s=0.5)) == pytest.approx(plain_s + 3 * 0.5)
    assert seconds(timed(problem, handling_s=0.5)) == pytest.approx(plain_s + 3 * 2 * 0.5)


def test_a_hop_makes_every_link_longer_by_the_mean_of_its_ends():
    problem = cluster_problem([(0.1, 0.02), (0.3, 0.04)], num_layers=5)
    one, other = problem.compute_profiles.values()
    hops = {one.name: 0.2, other.name: 0.4}
    profiles = {
        name: dataclasses.replace(
            profile, layer_times=dataclasses.replace(profile.layer_times, hop_s=hops[name])
        )
        for name, profile in problem.compute_profiles.items()
    }
    slower = dataclasses.replace(problem, compute_profiles=profiles)
    before_s, after_s = (
        run(each, placed((0, 2), (2, 5)), at(0.0, prompt_tokens=100, output_tokens=3)).simulated_s
        for each in (problem, slower)
    )
    # Three rounds from the coordinator, which has no profile, by way of both nodes and back.
    assert after_s - before_s == pytest.approx(3 * (0.2 + 0.3 + 0.4))


def test_a_step_of_prompts_and_decodes_takes_what_both_share_once():
    """The second prompt comes while the first one runs, and is in a step with its decode."""
    problem = cluster_problem([(0.1, 0.02)], num_layers=2)

    def busy_s(problem):
        forecast = run(
            problem,
            placed((0, 2)),
            at(0.0, 0.1, prompt_tokens=100, output_tokens=2),
            policy=dataclasses.replace(PLAIN, return_path="first_stage"),
        )
        return forecast.nodes["n0"].utilisation * forecast.window_s

    plain_s = busy_s(problem)
    assert plain_s == pytest.approx(2 * 0.2 + 2 * 0.024)
    assert busy_s(timed(problem, prompt_step_s=0.003, decode_step_s=0.002)) == pytest.approx(
        plain_s + 0.003 + 0.003 + 0.002
    )
    assert busy_s(timed(problem, head_s=0.1, handling_s=0.01)) == pytest.approx(plain_s + 3 * 0.11)


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
    assert direct.nodes["n1"].kv_peak == pytest.approx(7 * 16 * 3 / 10_000)
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


def test_a_request_that_enters_a_node_in_the_middle_joins_the_batch_there():
    """n0 runs layers 0 and 1; n1 holds 0 to 3 and is entered at 0 by one, at 2 by another."""
    problem = cluster_problem([(1.0, 0.1), (1.0, 0.1)], num_layers=4)
    placement = placed((0, 2), (0, 4))
    weights = {"source": {"n0": 1.0, "n1": 1.0}, "n0": {"n1": 1.0}, "n1": {"sink": 1.0}}
    finished = []
    forecast = simulate(
        problem,
        placement=placement,
        routing_weights=weights,
        demand=at(0.0, 0.0, prompt_tokens=100, output_tokens=1),
        policy=PLAIN,
        partial_inference=True,
        options=NO_COPY,
        on_request=finished.append,
    )
    assert sorted(len(record.pipeline.stages) for record in finished) == [1, 2]
    # Both run layers 0 and 1 apart in 2 s. n1 goes on alone with 2 and 3 for 2 s, for what n0 sends
    # takes 0.1 s to come; then it runs 2 and 3 for that one.
    assert forecast.simulated_s == pytest.approx(6.0, abs=0.02)
    assert forecast.nodes["n1"].utilisation == pytest.approx(6.0 / forecast.simulated_s, abs=0.01)
