"""Clusters small enough to follow by hand, or drawn at random, for tests of the simulator."""

import random
from dataclasses import replace

import pytest

from planner.domain.cluster import Cluster, Link, Node, SharedBandwidth
from planner.domain.layer_times import FIXED_KEYS, BatchLimits, LayerTimes
from planner.domain.model_spec import ModelSpec
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem, Workload
from planner.domain.profile import ComputeProfile
from planner.domain.serving_policy import PUBLISHED_POLICY, RUNTIME_POLICY
from planner.simulator.simulate import SimulationOptions, simulate
from planner.workload.demand import Arrivals
from planner.workload.request import Lengths, Request

ACTIVATION_BYTES = 1000.0
TOKEN_BYTES = 2.0
LATENCY_S = 0.001

PLAIN = replace(PUBLISHED_POLICY, published_batch_limits=False)
MEASURED = replace(
    RUNTIME_POLICY, decode_cap_divisor=None, decode_cap_floor=1, measured_micro_batches=6
)
POLICIES = (
    PUBLISHED_POLICY,
    replace(PLAIN, decode_cap_divisor=4, decode_cap_floor=2),
    replace(RUNTIME_POLICY, prompt_chunk_tokens=40, decode_cap_floor=2),
    replace(RUNTIME_POLICY, prompt_chunk_tokens=64, piece_bytes=900.0),
    replace(RUNTIME_POLICY, prompt_chunk_tokens=None, piece_bytes=None),
    replace(RUNTIME_POLICY, piece_bytes=500.0, step_overhead_s=0.001, messages="per_request"),
    replace(MEASURED, messages="per_request"),
)
NO_COPY = SimulationOptions(warm_up_s=0.0, window_s=1000.0, host_copy_s_per_byte=0.0)


def cluster_problem(
    kinds,
    *,
    num_layers,
    bandwidth_bytes_per_s=1e6,
    kv_token_layers=10_000.0,
):
    """Node i is f"n{i}"; kinds[i] is (seconds of a layer for 100 prompt tokens, for 10 decodes).

    Times are proportional to tokens, for decodes on top of half of it.
    """
    profiles = {}
    for prompt_s, decode_s in set(kinds):
        name = f"{prompt_s:g}/{decode_s:g}"
        profiles[name] = ComputeProfile(
            name=name,
            gpu="test",
            vram_bytes=1e9,
            max_layers=num_layers,
            tokens_per_s=(1.0,) * num_layers,
            kv_capacity_token_layers=(kv_token_layers,) * num_layers,
            layer_times=LayerTimes(
                prompt=((100.0, prompt_s),),
                decode=((2.0, decode_s * 0.6), (10.0, decode_s)),
            ),
            batch_limits=BatchLimits(
                prompt_max_requests=(1,) * num_layers, decode_max_tokens=(4,) * num_layers
            ),
        )
    return Problem(
        name="simulated",
        model=ModelSpec(
            name="model",
            num_layers=num_layers,
            activation_bytes_per_token=ACTIVATION_BYTES,
            token_bytes=TOKEN_BYTES,
            bytes_per_layer=1e6,
        ),
        workload=Workload(mean_prompt_tokens=100, mean_output_tokens=10),
        compute_profiles=profiles,
        cluster=Cluster(
            name="simulated",
            coordinator_region="here",
            nodes=tuple(
                Node(name=f"n{index}", region="here", compute_profile=f"{prompt_s:g}/{decode_s:g}")
                for index, (prompt_s, decode_s) in enumerate(kinds)
            ),
            region_links=(
                Link(
                    source="here",
                    target="here",
                    bandwidth_bytes_per_s=bandwidth_bytes_per_s,
                    latency_s=LATENCY_S,
                ),
            ),
        ),
    )


def placed(*ranges, components=()):
    """Node i holds ranges[i], as [first, end)."""
    return Placement(
        layers={
            f"n{index}": LayerRange(first=first, end=end)
            for index, (first, end) in enumerate(ranges)
        },
        components=components,
    )


def even_weights(placement, *, num_layers, partial_inference):
    """A weight of 1 for every hop of a route that leads to the sink."""
    layers = placement.layers

    def successors(position):
        return [
            name
            for name, held in layers.items()
            if (held.first <= position < held.end if partial_inference else held.first == position)
        ]

    def leads_home(name):
        end = layers[name].end
        return end == num_layers or any(leads_home(after) for after in successors(end))

    weights = {"source": {name: 1.0 for name in successors(0) if leads_home(name)}}
    for name, held in layers.items():
        after = {other: 1.0 for other in successors(held.end) if leads_home(other)}
        if held.end == num_layers:
            after = {"sink": 1.0}
        if after:
            weights[name] = after
    return weights


def random_case(seed, *, kv_tokens=None):
    """(problem, placement, weights, partial inference) that serve every request of 300 tokens.

    `kv_tokens`: every node has room for so many in all layers; without it for many requests.
    """
    rng = random.Random(seed)
    num_layers = rng.randint(2, 8)
    partial_inference = rng.random() < 0.4
    while True:
        ranges = []
        for _ in range(rng.randint(1, 6)):
            first = rng.randrange(num_layers)
            ranges.append((first, rng.randint(first + 1, num_layers)))
        placement = placed(*ranges)
        weights = even_weights(
            placement, num_layers=num_layers, partial_inference=partial_inference
        )
        if weights["source"]:
            break
    problem = cluster_problem(
        [(rng.choice([0.01, 0.05]), rng.choice([0.002, 0.01])) for _ in ranges],
        num_layers=num_layers,
        bandwidth_bytes_per_s=rng.choice([2e5, 1e6, 1e8]),
        kv_token_layers=(
            rng.choice([4_000.0, 20_000.0]) if kv_tokens is None else kv_tokens * num_layers
        ),
    )
    return problem, placement, weights, partial_inference


def with_shared_bandwidth(problem, seed):
    """The same where some nodes, and perhaps the coordinator, share less than their links have."""
    rng = random.Random(seed)
    ends = ["coordinator", *(node.name for node in problem.cluster.nodes)]
    bandwidth = problem.cluster.region_links[0].bandwidth_bytes_per_s
    shared = tuple(
        SharedBandwidth(
            name=f"shared{number}",
            members=tuple(rng.sample(ends, rng.randint(1, len(ends)))),
            direction=rng.choice(["egress", "ingress"]),
            bandwidth_bytes_per_s=bandwidth * rng.choice([0.3, 0.7, 1.5]),
            scope=rng.choice(["region", "nic"]),
        )
        for number in range(rng.randint(1, 4))
    )
    return replace(problem, cluster=replace(problem.cluster, shared=shared))


def with_fixed_times(problem, seed):
    """The same where steps, heads, handling and hops take time, and one decode was measured."""
    rng = random.Random(seed)
    profiles = {}
    for name, profile in problem.compute_profiles.items():
        times = profile.layer_times
        fixed = {key: rng.choice([0.0, 0.003, 0.02]) for key in FIXED_KEYS}
        decode = (*rng.choice([(), ((1.0, times.decode[0][1] / 2),)]), *times.decode)
        profiles[name] = replace(profile, layer_times=replace(times, decode=decode, **fixed))
    return replace(problem, compute_profiles=profiles)


def lengths(prompt_tokens, output_tokens):
    return Lengths(prompt_tokens=prompt_tokens, output_tokens=output_tokens)


def at(*times, prompt_tokens, output_tokens):
    pair = lengths(prompt_tokens, output_tokens)
    return Arrivals(requests=iter([Request(arrival_s=time, lengths=pair) for time in times]))


def mixed_lengths(seed):
    rng = random.Random(seed)
    while True:
        yield lengths(rng.randint(1, 250), rng.randint(1, 40))


def run(
    problem,
    placement,
    demand,
    *,
    policy=PLAIN,
    options=NO_COPY,
    partial_inference=False,
    **others,
):
    weights = even_weights(
        placement,
        num_layers=problem.model.num_layers,
        partial_inference=partial_inference,
    )
    return simulate(
        problem,
        placement=placement,
        routing_weights=weights,
        demand=demand,
        policy=policy,
        partial_inference=partial_inference,
        options=options,
        **others,
    )


def within_a_bucket(seconds):
    """Percentiles are right to the width of their bucket."""
    return pytest.approx(seconds, rel=0.016)
