"""The bound on served tokens against every placement of tiny clusters, and against simulations."""

import random
from dataclasses import replace

import pytest
from simulated_clusters import (
    POLICIES,
    cluster_problem,
    even_weights,
    placed,
    random_case,
    with_fixed_times,
)
from tiny_problems import all_placements, tiny_problem

from planner.balanced_flow import balanced_flow
from planner.bounds.served import served_bounds_tokens_per_s
from planner.domain.layer_times import LayerTimes
from planner.domain.problem import Workload
from planner.domain.rules import PlacementRules
from planner.domain.serving_policy import PUBLISHED_POLICY, RUNTIME_POLICY
from planner.estimate.estimate import Estimator
from planner.plan_options import PlanOptions
from planner.planning import compute_plan
from planner.simulator.simulate import SimulationOptions, simulate
from planner.workload.demand import Backlog
from planner.workload.lengths import scaled_lengths

# A window of minutes has some more or less of prompts, and lengths that chance drew.
CHANCE = 1.02
TINY = {
    "few layers each": ([[50.0], [80.0], [80.0], [10.0]], 4),
    "uneven": ([[100.0, 60.0, 30.0], [50.0, 24.0], [30.0, 10.0]], 3),
    "whole": ([[500.0, 240.0, 150.0], [300.0, 100.0, 80.0], [40.0, 30.0]], 3),
}


def bound_of(problem, policy=RUNTIME_POLICY, **options):
    """The last of bounds that become ever tighter."""
    found = list(served_bounds_tokens_per_s(problem, policy=policy, **options))
    assert found == sorted(found, reverse=True)
    return found[-1]


def with_room(problem, token_layers, *, rng):
    """Profiles with KV room that falls with the layers held, or not."""
    return replace(
        problem,
        compute_profiles={
            name: replace(
                profile,
                kv_capacity_token_layers=tuple(
                    token_layers * rng.choice((0.5, 1.0, 2.0)) / (1 + held * rng.choice((0, 1)))
                    for held in range(profile.max_layers)
                ),
            )
            for name, profile in problem.compute_profiles.items()
        },
    )


@pytest.mark.parametrize("policy", [RUNTIME_POLICY, PUBLISHED_POLICY])
@pytest.mark.parametrize("token_layers", [60.0, pytest.param(2000.0, marks=pytest.mark.long), 1e6])
@pytest.mark.parametrize("name", TINY)
def test_no_placement_of_a_tiny_cluster_is_estimated_to_serve_more(name, token_layers, policy):
    speeds, num_layers = TINY[name]
    policy = replace(policy, published_batch_limits=False)
    problem = tiny_problem(speeds, num_layers=num_layers)
    problem = with_room(problem, token_layers, rng=random.Random(name))
    estimator = Estimator(problem, policy=policy)
    best = max(
        estimator.of(
            placement, balanced_flow(problem, placement, partial_inference=True)
        ).decode_tokens_per_s
        for placement in all_placements(problem)
    )
    assert 0 < best <= bound_of(problem, policy)


def lengths_of(problem, seed):
    return scaled_lengths(problem.workload, seed=seed)


def chain(seed):
    """(problem, placement, policy) of nodes in a row that are all needed, so the bound is near."""
    rng = random.Random(seed)
    nodes, each, prompt_tokens = rng.randint(1, 4), rng.randint(1, 2), rng.choice([30, 100, 300])
    problem = cluster_problem(
        [(rng.choice([0.01, 0.05]), rng.choice([0.002, 0.01]))] * nodes,
        num_layers=nodes * each,
        bandwidth_bytes_per_s=1e8,
        kv_token_layers=each * prompt_tokens * rng.choice([15.0, 40.0, 150.0]),
    )
    if rng.random() < 0.3:
        problem = with_fixed_times(problem, seed)
    problem = replace(
        problem,
        workload=Workload(
            mean_prompt_tokens=prompt_tokens, mean_output_tokens=rng.choice([20, 60])
        ),
        compute_profiles={
            name: replace(profile, max_layers=each)
            for name, profile in problem.compute_profiles.items()
        },
    )
    ranges = [(number * each, (number + 1) * each) for number in range(nodes)]
    policy = replace(POLICIES[seed % len(POLICIES)], published_batch_limits=False)
    return problem, placed(*ranges), policy


@pytest.mark.slow
def test_no_chain_of_nodes_is_simulated_to_serve_more_for_long():
    shares = []
    for seed in (1, 2, 3, 6, 10, 11, 19, 21, 22, 28, 29, 31, 35, 37):
        problem, placement, policy = chain(seed)
        forecast = simulate(
            problem,
            placement=placement,
            routing_weights=even_weights(
                placement, num_layers=problem.model.num_layers, partial_inference=False
            ),
            demand=Backlog(lengths=lengths_of(problem, seed)),
            policy=policy,
            partial_inference=False,
            options=SimulationOptions(warm_up_s=60.0, window_s=120.0),
        )
        shares.append(forecast.decode_tokens_per_s / bound_of(problem, policy))
    assert max(shares) <= CHANCE
    assert sorted(shares)[len(shares) // 2] > 0.8


def test_no_placement_by_chance_is_estimated_or_simulated_to_serve_more():
    for seed in range(4):
        problem, *_ = random_case(seed)
        rng, num_layers = random.Random(seed), problem.model.num_layers
        policy = replace(POLICIES[seed], published_batch_limits=False)
        estimator, bound = Estimator(problem, policy=policy), bound_of(problem, policy)
        for number in range(100):
            ranges = []
            for _ in problem.cluster.nodes:
                first = rng.randrange(num_layers) if rng.random() < 0.5 else 0
                end = rng.randint(first + 1, num_layers) if rng.random() < 0.5 else num_layers
                ranges.append((first, end))
            placement = placed(*ranges)
            flow = balanced_flow(problem, placement, partial_inference=True)
            rate = estimator.of(placement, flow).decode_tokens_per_s
            assert rate <= bound
            if rate > 0 and number < 15:
                weights = even_weights(placement, num_layers=num_layers, partial_inference=True)
                forecast = simulate(
                    problem,
                    placement=placement,
                    routing_weights=weights,
                    demand=Backlog(lengths=lengths_of(problem, seed)),
                    policy=policy,
                    partial_inference=True,
                    options=SimulationOptions(warm_up_s=3.0, window_s=6.0),
                )
                assert forecast.decode_tokens_per_s <= bound


def far_apart(problem, rng):
    """Its nodes in two or three regions."""
    cluster, [link] = problem.cluster, problem.cluster.region_links
    regions, far_s = ["here", "there", "yonder"][: rng.randint(2, 3)], rng.choice([0.01, 0.1])
    links = tuple(
        replace(link, source=one, target=other, latency_s=0.001 if one == other else far_s)
        for one in regions
        for other in regions
    )
    nodes = tuple(replace(node, region=rng.choice(regions)) for node in cluster.nodes)
    return replace(problem, cluster=replace(cluster, nodes=nodes, region_links=links))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_scarce_room_and_regions_do_not_let_chance_serve_more(seed):
    rng = random.Random(seed)
    num_layers, policy = (
        rng.randint(2, 6),
        replace(POLICIES[seed % 7], published_batch_limits=False),
    )
    kinds = [
        (rng.choice([0.001, 0.01, 0.05]), rng.choice([0.002, 0.05, 0.3]))
        for _ in range(rng.randint(2, 6))
    ]
    prompt, output = rng.choice([(100, 10), (300, 60), (10, 200)])
    problem = cluster_problem(kinds, num_layers=num_layers, bandwidth_bytes_per_s=1e8)
    problem = with_room(problem, (prompt + output) * num_layers * rng.choice([10, 100]), rng=rng)
    most = rng.randint(min(num_layers, -(-2 * num_layers // len(kinds))), num_layers)
    problem = replace(
        problem if seed % 2 else far_apart(problem, rng),
        workload=Workload(mean_prompt_tokens=prompt, mean_output_tokens=output),
        compute_profiles={
            name: replace(profile, max_layers=most)
            for name, profile in problem.compute_profiles.items()
        },
    )
    estimator, bound = Estimator(problem, policy=policy), bound_of(problem, policy)
    rates = {}
    for _ in range(60):
        lengths = [rng.randint(1, most) for _ in kinds]
        firsts = [rng.randint(0, num_layers - length) for length in lengths]
        ranges = tuple(
            (first, first + length) for first, length in zip(firsts, lengths, strict=True)
        )
        flow = balanced_flow(problem, placed(*ranges), partial_inference=True)
        rates[ranges] = estimator.of(placed(*ranges), flow).decode_tokens_per_s
    best = max(rates, key=rates.__getitem__)
    assert 0 < rates[best] <= bound
    window_s = 2e5 / rates[best]
    served = simulated_tokens_per_s(
        problem, placed(*best), policy=policy, warm_up_s=window_s, window_s=window_s
    )
    assert served <= CHANCE * bound


def simulated_tokens_per_s(problem, placement, *, warm_up_s, window_s, policy=RUNTIME_POLICY):
    """With partial inference, and even weights."""
    forecast = simulate(
        problem,
        placement=placement,
        routing_weights=even_weights(
            placement, num_layers=problem.model.num_layers, partial_inference=True
        ),
        demand=Backlog(lengths=lengths_of(problem, 1), prompts_in_flight=1000),
        policy=policy,
        partial_inference=True,
        options=SimulationOptions(warm_up_s=warm_up_s, window_s=window_s),
    )
    return forecast.decode_tokens_per_s


def test_a_fast_and_a_slow_node_behind_one_serve_no_more_together():
    """Of 28 requests behind the fast one a token takes 0.05 s, of 365 behind the slow one 0.6 s."""
    problem = cluster_problem(
        [(0.001, 0.002), (0.001, 0.04), (0.001, 0.4)], num_layers=2, bandwidth_bytes_per_s=1e8
    )
    figures = ((0.002, 0.06, 1e7), (0.04, 0.08, 3e3), (0.4, 0.8, 4e4))
    problem = replace(
        problem,
        workload=Workload(mean_prompt_tokens=20, mean_output_tokens=60),
        compute_profiles={
            node.compute_profile: replace(
                problem.profile_of(node.name),
                max_layers=1,
                kv_capacity_token_layers=(room,),
                layer_times=LayerTimes(
                    prompt=((100.0, 1e-4),), decode=((1.0, few_s), (1000.0, many_s))
                ),
            )
            for node, (few_s, many_s, room) in zip(problem.cluster.nodes, figures, strict=True)
        },
    )
    placement = placed((0, 1), (1, 2), (1, 2))
    flow = balanced_flow(problem, placement, partial_inference=True)
    estimate = Estimator(problem, policy=RUNTIME_POLICY).of(placement, flow)
    bound = bound_of(problem)
    assert 0.6 * bound < estimate.decode_tokens_per_s <= bound
    assert simulated_tokens_per_s(problem, placement, warm_up_s=40.0, window_s=20.0) <= bound


@pytest.mark.parametrize(("nodes", "least"), [(1, 0.5), (2, 0.8)])
def test_copies_of_what_arrives_are_charged(nodes, least):
    """They take most of a chain's steps, and decodes of a node with the whole model have none."""
    problem = cluster_problem(
        [(0.002, 0.002)] * nodes, num_layers=nodes, bandwidth_bytes_per_s=1e12, kv_token_layers=5e3
    )
    problem = replace(
        problem,
        workload=Workload(mean_prompt_tokens=10, mean_output_tokens=100),
        model=replace(problem.model, activation_bytes_per_token=1e6),
        compute_profiles={
            name: replace(profile, max_layers=1)
            for name, profile in problem.compute_profiles.items()
        },
    )
    bound = bound_of(problem)
    ranges = [(number, number + 1) for number in range(nodes)]
    served = simulated_tokens_per_s(problem, placed(*ranges), warm_up_s=20.0, window_s=40.0)
    assert least * bound < served <= CHANCE * bound


def test_scarce_room_and_fewer_nodes_lower_the_bound():
    problem = cluster_problem([(0.01, 0.002)] * 4, num_layers=2, kv_token_layers=1e9)
    ample = bound_of(problem)
    scarce = bound_of(with_room(problem, 300.0, rng=random.Random(1)))
    fewer = bound_of(problem, rules=PlacementRules(excluded_nodes=frozenset({"n0", "n1"})))
    assert scarce < 0.9 * ample
    assert fewer < 0.6 * ample


def test_nodes_without_room_for_a_request_serve_none():
    problem = cluster_problem([(0.01, 0.002)] * 2, num_layers=2, kv_token_layers=0.0)
    assert bound_of(problem) == 0


def test_steps_that_may_take_next_to_nothing_leave_a_bound():
    """What a step takes beside its layers may be the prompts' part, so its rate has no end."""
    problem = cluster_problem([(0.001, 0.01)] * 3, num_layers=3, kv_token_layers=4e3)
    problem = replace(
        problem,
        compute_profiles={
            name: replace(
                profile,
                layer_times=replace(profile.layer_times, prompt_step_s=0.5, decode_step_s=0.5),
            )
            for name, profile in problem.compute_profiles.items()
        },
    )
    placement = placed((0, 1), (1, 2), (2, 3))
    flow = balanced_flow(problem, placement, partial_inference=True)
    estimate = Estimator(problem, policy=RUNTIME_POLICY).of(placement, flow)
    assert 0 < estimate.decode_tokens_per_s <= bound_of(problem)


def test_a_slow_link_is_charged_for_every_region_that_a_token_must_visit():
    """Four regions, each with room for a quarter of the model: only their order can differ."""
    problem = cluster_problem([(0.01, 0.002)] * 8, num_layers=8, kv_token_layers=3000.0)
    cluster, regions = problem.cluster, [f"region {number}" for number in range(4)]
    nodes = tuple(
        replace(node, region=regions[number // 2]) for number, node in enumerate(cluster.nodes)
    )
    [link] = cluster.region_links
    links = tuple(
        replace(link, source=source, target=target, latency_s=0.001 if source == target else 0.2)
        for source in [*regions, "here"]
        for target in [*regions, "here"]
    )
    problem = replace(
        problem,
        cluster=replace(cluster, nodes=nodes, region_links=links),
        compute_profiles={
            name: replace(profile, max_layers=1)
            for name, profile in problem.compute_profiles.items()
        },
    )
    placement = placed(*((number, number + 1) for number in range(8)))
    flow = balanced_flow(problem, placement, partial_inference=True)
    estimate = Estimator(problem, policy=RUNTIME_POLICY).of(placement, flow)
    assert estimate.decode_tokens_per_s <= bound_of(problem) < 1.5 * estimate.decode_tokens_per_s


def test_a_plan_tells_its_bound_from_the_search_on():
    problem = tiny_problem([[900.0, 400.0]] * 2, num_layers=2)
    heard = []
    plan = compute_plan(
        problem, options=PlanOptions(time_limit_s=2.0), progress=heard.append, clock=lambda: 0.0
    )
    bound = plan.forecast.upper_bound
    assert plan.forecast.value <= bound
    assert heard[-1].objective_bound == pytest.approx(bound, rel=1e-2)
    assert all(
        one.objective_bound is None or one.objective_value <= one.objective_bound for one in heard
    )
