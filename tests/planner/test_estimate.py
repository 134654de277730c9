"""The estimate: the same by a second text, right where it can be worked out by hand."""

import itertools
import math
import random
from dataclasses import replace

import fixed_point_in_python
import numpy as np
import pytest
from simulated_clusters import cluster_problem
from tiny_problems import placement, tiny_problem

from planner.balanced_flow import balanced_flow
from planner.domain.layer_times import LayerTimes
from planner.domain.placement import Placement
from planner.domain.problem import Problem, Workload
from planner.domain.serving_policy import PUBLISHED_POLICY, RUNTIME_POLICY
from planner.estimate.estimate import Estimate, Estimator
from planner.estimate.fixed_point import sustained
from planner.estimate.lengths import LengthStatistics, lengths_like_published
from planner.estimate.load import OUTSIDE, Load, Tables, loads_of
from planner.objectives.trial import Span, Trials
from planner.plan_options import PlanOptions
from planner.workload.lengths import scaled_lengths
from planner.workload.request import Lengths

TIMES = LayerTimes(prompt=((250.0, 0.010),), decode=((2.0, 0.004), (100.0, 0.02)))
SHORT = LengthStatistics(
    prompt_tokens=100.0, output_tokens=50.0, reserved_tokens=160.0, squared_ratio=1.3
)


def timed(problem: Problem, *, kv: float = 1e5) -> Problem:
    profiles = {
        name: replace(
            profile,
            layer_times=TIMES,
            kv_capacity_token_layers=(kv,) * profile.max_layers,
        )
        for name, profile in problem.compute_profiles.items()
    }
    return replace(problem, compute_profiles=profiles)


def estimated(problem: Problem, placed: Placement, **estimator: object) -> Estimate:
    values = {"policy": RUNTIME_POLICY, "lengths": SHORT} | estimator
    flow = balanced_flow(problem, placed, partial_inference=True)
    return Estimator(problem, **values).of(placed, flow)


def random_load(seed: int) -> tuple[Load, Tables]:
    """Three stages of one to three nodes, every node linked to all of the next stage."""
    rng = random.Random(seed)
    stages = [rng.randint(1, 3) for _ in range(3)]
    group = [stage for stage, count in enumerate(stages) for _ in range(count)]
    share = []
    for count in stages:
        parts = [rng.uniform(0.1, 1) for _ in range(count)]
        share += [part / sum(parts) for part in parts]
    ends = [(OUTSIDE, node) for node in range(stages[0])]
    ends += [
        (tail, head)
        for tail in range(len(group))
        for head in range(len(group))
        if group[head] == group[tail] + 1
    ]
    ends += [(node, OUTSIDE) for node in range(len(group)) if group[node] == 2]
    part = [
        (1.0 if t == OUTSIDE else share[t]) * (1.0 if h == OUTSIDE else share[h]) for t, h in ends
    ]
    count = len(group)

    def reals(low: float, high: float, size: int) -> np.ndarray:
        return np.array([rng.uniform(low, high) for _ in range(size)])

    rises = np.cumsum([[rng.uniform(1e-5, 1e-4) for _ in range(64)] for _ in range(2)], axis=1)
    load = Load(
        group_N=np.array(group),
        table_N=np.array([rng.randint(0, 1) for _ in group]),
        share_N=np.array(share),
        layers_N=reals(1, 9, count),
        step_s_N=reals(1e-3, 2e-2, count),
        room_N=reals(5, 500, count),
        decode_limit_N=np.array([rng.choice([1e18, 60.0]) for _ in group]),
        tail_E=np.array([tail for tail, _ in ends]),
        head_E=np.array([head for _, head in ends]),
        share_E=np.array(part),
        bandwidth_E=reals(1e4, 1e7, len(ends)),
        latency_E=reals(0, 0.1, len(ends)),
        crowding_E=reals(0, 1e-3, len(ends)),
        return_s=rng.uniform(0, 0.1),
    )
    return load, Tables(decode_s_KB=0.004 + rises, slope_s_K=np.array([1e-4, 2e-4]))


@pytest.mark.parametrize("policy", [RUNTIME_POLICY, PUBLISHED_POLICY])
@pytest.mark.parametrize("transmission", ["fifo", "decode_first"])
def test_the_estimate_is_that_of_its_description_to_the_last_bit(policy, transmission):
    problem = timed(tiny_problem([[9.0, 4.0]], num_layers=2))
    policy = replace(policy, transmission=transmission)
    model = Estimator(problem, policy=policy, lengths=SHORT).model
    served = 0
    for seed in range(60):
        load, tables = random_load(seed)
        limited = replace(model, tpot_limit_s=0.5) if seed % 3 == 0 else model
        ours = sustained(limited, load, tables)
        assert ours == fixed_point_in_python.sustained(limited, load, tables)
        served += ours.decode_tokens_per_s > 0
    assert served > 30


def test_a_single_idle_node_serves_what_one_request_at_a_time_gets():
    """Room for one request: 1 / X is its round trip and its share of the prompt's time."""
    problem = timed(tiny_problem([[9.0, 4.0]], num_layers=2), kv=1.0001 * 160 * 2 / 0.85)
    found = estimated(problem, placement(n0=(0, 2)), policy=replace(RUNTIME_POLICY, piece_bytes=1))
    assert found.held == pytest.approx(1.0, rel=1e-3)
    rate = found.decode_tokens_per_s
    assert rate * (found.tpot_s + found.ttft_s / 50) == pytest.approx(1.0, rel=1e-3)
    step_s = 2 * 0.004
    assert step_s < found.tpot_s < 3 * step_s + 0.002  # one to two cycles and two hops of 1 ms


@pytest.mark.parametrize("stages", [8, 20, 40])
def test_a_chain_of_single_nodes_is_estimated_at_about_what_it_serves(stages):
    """Requests gather behind each other and step together, as many as a full step takes."""
    chain = replace(
        cluster_problem(
            [(0.002, 0.002)] * stages,
            num_layers=stages,
            kv_token_layers=5e4,
            bandwidth_bytes_per_s=1e8,
        ),
        workload=Workload(mean_prompt_tokens=100, mean_output_tokens=100),
    )
    trials = Trials(chain, PlanOptions())
    in_a_row = placement(**{f"n{at}": (at, at + 1) for at in range(stages)})
    trial = trials.estimated(in_a_row, placer="chain")
    served = trials.simulated(trial, seeds=(1,), span=Span(warm_up=2.0, window=2.0))
    assert trial.value == pytest.approx(served.decode_tokens_per_s, rel=0.2)


def test_more_kv_room_serves_more_and_makes_each_token_slower():
    problem = tiny_problem([[9.0, 4.0], [9.0, 4.0]], num_layers=4)
    found = [
        estimated(timed(problem, kv=kv), placement(n0=(0, 2), n1=(2, 4))) for kv in (1e4, 2e4, 4e4)
    ]
    rates = [one.decode_tokens_per_s for one in found]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1]
    trips = [one.tpot_s for one in found]
    assert trips == sorted(trips)


def test_no_estimate_exceeds_what_the_tables_allow_at_perfect_batching():
    problem = timed(tiny_problem([[9.0, 4.0]], num_layers=2), kv=1e9)
    rate = estimated(problem, placement(n0=(0, 2))).decode_tokens_per_s
    prompt_s_per_output = 2 * 100 / 50 * 0.010 / 250
    perfect_s = 2 * (0.02 - 0.004) / 98
    assert rate < 1 / (prompt_s_per_output + perfect_s)


def test_what_a_full_node_cannot_take_goes_to_the_others_of_its_stage():
    """Node 1 is as fast as node 0 but has a tenth of the KV room: both are full in the end."""
    problem = tiny_problem([[9.0], [9.0, 1.0]], num_layers=1)
    small, large = problem.compute_profiles.values()
    profiles = {
        small.name: replace(small, layer_times=TIMES, kv_capacity_token_layers=(1e3,)),
        large.name: replace(large, layer_times=TIMES, kv_capacity_token_layers=(1e4, 1e4)),
    }
    problem = replace(problem, compute_profiles=profiles)
    found = estimated(problem, placement(n0=(0, 1), n1=(0, 1)))
    assert found.held == pytest.approx(0.85 * 1.1e4 / 160, rel=1e-3)


def test_components_add_up_and_each_has_its_own_room():
    problem = timed(tiny_problem([[9.0, 4.0]] * 4, num_layers=2))
    layers = placement(n0=(0, 1), n1=(1, 2), n2=(0, 1), n3=(1, 2)).layers
    apart = Placement(layers=layers, components=(frozenset({"n0", "n1"}), frozenset({"n2", "n3"})))
    alone = estimated(problem, placement(n0=(0, 1), n1=(1, 2)))
    both = estimated(problem, apart)
    assert both.decode_tokens_per_s == pytest.approx(2 * alone.decode_tokens_per_s)
    assert both.tpot_s == pytest.approx(alone.tpot_s)
    assert len(both.components) == 2


def test_a_narrow_link_limits_the_rate_to_its_bandwidth():
    links = {("n0", "n1"): 300.0}
    problem = timed(
        tiny_problem([[9e3, 4e3], [9e3, 4e3]], num_layers=2, link_tokens_per_s=links), kv=1e9
    )
    rate = estimated(problem, placement(n0=(0, 1), n1=(1, 2))).decode_tokens_per_s
    assert rate * (1 + 100 / 50) <= 300
    assert rate * (1 + 100 / 50) > 200


def test_a_plan_that_cannot_serve_has_an_estimate_of_nothing():
    problem = timed(tiny_problem([[9.0], [9.0]], num_layers=3))
    found = estimated(problem, placement(n0=(0, 1), n1=(1, 2)))
    assert found.decode_tokens_per_s == 0
    assert found.held == 0


def test_requests_in_flight_are_longer_than_requests():
    found = LengthStatistics.of(
        [Lengths(prompt_tokens=10, output_tokens=10), Lengths(prompt_tokens=100, output_tokens=30)]
    )
    assert found.prompt_tokens == 55
    assert found.output_tokens == 20
    reserved = (10 * 30 + 30 * 120 + 10**2 / 2) / 2 / 20
    assert found.reserved_tokens == pytest.approx(reserved)
    assert math.isclose(found.squared_ratio, (100 + 10000) / 2 / 55**2)


@pytest.mark.parametrize(("prompt", "output"), [(750, 240), (40, 400), (2000, 50)])
def test_reservations_scale_with_both_means(prompt, output):
    workload = Workload(mean_prompt_tokens=prompt, mean_output_tokens=output)
    drawn = LengthStatistics.of(itertools.islice(scaled_lengths(workload, seed=3), 20_000))
    expected = pytest.approx(drawn.reserved_tokens, rel=0.02)
    assert lengths_like_published(workload).reserved_tokens == expected


def test_straight_from_last_to_first_a_token_is_spared_the_way_by_the_coordinator():
    """Links of 1 ms: two to the coordinator and back, one straight, none within a node."""
    problem = timed(tiny_problem([[9.0, 4.0], [9.0, 4.0]], num_layers=4))
    around = replace(RUNTIME_POLICY, return_path="coordinator")
    for placed, links in (
        (placement(n0=(0, 2), n1=(2, 4)), {RUNTIME_POLICY: 1, around: 2}),
        (placement(n0=(0, 2), n1=(0, 2)), {RUNTIME_POLICY: 0, around: 2}),
    ):
        whole = problem
        if placed.layers["n1"].first == 0:
            whole = timed(tiny_problem([[9.0, 4.0], [9.0, 4.0]], num_layers=2))
        for policy, count in links.items():
            figures = Estimator(whole, policy=policy, lengths=SHORT).figures
            flow = balanced_flow(whole, placed, partial_inference=True)
            spread = {(edge.source, edge.target): edge.flow_tokens_per_s for edge in flow.edges}
            for load in loads_of(figures, placed, spread):
                assert load.return_s == pytest.approx(count * 0.001)


def test_nodes_that_share_no_request_fill_apart():
    """One component, two whole models: the slow one, once full, does not hold up the fast one."""
    problem = timed(tiny_problem([[9.0, 4.0], [1.0, 0.5]], num_layers=2))
    _, slow = problem.compute_profiles.values()
    times = replace(TIMES, decode=((2.0, 0.4), (100.0, 2.0)), prompt=((250.0, 1.0),))
    profiles = {**problem.compute_profiles}
    profiles[slow.name] = replace(profiles[slow.name], layer_times=times)
    problem = replace(problem, compute_profiles=profiles)
    both = estimated(problem, placement(n0=(0, 2), n1=(0, 2)))
    alone = estimated(problem, placement(n0=(0, 2)))
    assert alone.decode_tokens_per_s < both.decode_tokens_per_s < 1.1 * alone.decode_tokens_per_s


def test_a_step_takes_no_more_than_one_chunk():
    """Where decodes are dear every step of them lets in one chunk: prompts bound the rate."""
    times = replace(TIMES, decode=((2.0, 0.05), (100.0, 0.05)))
    long_prompts = replace(SHORT, prompt_tokens=1000.0, output_tokens=10.0)
    problem = tiny_problem([[9.0]], num_layers=1)
    profiles = {
        name: replace(profile, layer_times=times, kv_capacity_token_layers=(1e6,))
        for name, profile in problem.compute_profiles.items()
    }
    found = estimated(
        replace(problem, compute_profiles=profiles), placement(n0=(0, 1)), lengths=long_prompts
    )
    # 4.5 steps of 0.06 s for every 10 tokens.
    assert 0.8 * 10 / (4.5 * 0.06) < found.decode_tokens_per_s <= 10 / (4.5 * 0.06)


def test_a_fixed_cap_bounds_the_batches():
    problem = timed(tiny_problem([[9.0, 4.0]], num_layers=2), kv=4e5)
    found = [
        estimated(
            problem,
            placement(n0=(0, 2)),
            policy=replace(RUNTIME_POLICY, measured_micro_batches=None, decode_cap_divisor=divisor),
        ).decode_tokens_per_s
        for divisor in (None, 40.0)
    ]
    assert found[1] < found[0]
