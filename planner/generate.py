"""Clusters made by rule, of any size: what the planner is tested and measured on.

The speeds are those that the Helix artifact publishes for LLaMA-2 70B on its 42-node cluster,
rounded to whole tokens/s.
"""

import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations

from planner.domain.cluster import Cluster, Link, Node
from planner.domain.errors import InvalidProblem
from planner.domain.model_spec import ModelSpec
from planner.domain.problem import Problem, Workload
from planner.domain.profile import ComputeProfile
from planner.units import bytes_per_s_from_gbit_per_s, bytes_per_s_from_mbit_per_s

LLAMA_70B = ModelSpec(
    name="llama2_70b",
    num_layers=80,
    activation_bytes_per_token=16384,
    token_bytes=2,
    bytes_per_layer=1.53e9,
)
PUBLISHED_MIX: Mapping[str, float] = {"A100": 0.15, "V100": 0.20, "L4": 0.30, "T4": 0.35}


def _profile(
    name: str, vram_gb: float, tokens_per_s: tuple[int, ...], kv_capacity: tuple[int, ...]
) -> ComputeProfile:
    return ComputeProfile(
        name=name,
        gpu=name,
        vram_bytes=vram_gb * 1e9,
        max_layers=len(tokens_per_s),
        tokens_per_s=tuple(map(float, tokens_per_s)),
        kv_capacity_token_layers=tuple(map(float, kv_capacity)),
    )


PROFILES: Mapping[str, ComputeProfile] = {
    profile.name: profile
    for profile in (
        _profile(
            "A100",
            40,
            (31327, 15363, 9918, 7039, 5430, 4251, 3406, 2847, 2340, 1931, 1653, 1364),
            tuple(range(7_973_216, 3_377_000, -417_795)),
        ),
        _profile("V100", 16, (14014, 5890, 3342, 1982), (2756096, 2302464, 1848816, 1395200)),
        _profile(
            "L4",
            24,
            (9111, 4239, 2563, 1812, 1285, 917, 656),
            (4258336, 3872544, 3422208, 3004416, 2586640, 2168832, 1751008),
        ),
        _profile("T4", 16, (6180, 2912, 1622, 928), (2485120, 2031488, 1577856, 1124224)),
    )
}


def generated_cluster(
    *,
    num_nodes: int,
    num_regions: int,
    seed: int,
    mix: Mapping[str, float] = PUBLISHED_MIX,
    unevenness: float = 0.0,
) -> Problem:
    """A cluster of `num_nodes`, dealt to regions of equal size by chance; the same for a seed.

    `mix` gives each profile's share; the numbers of nodes are the shares' to within one. With
    `unevenness` above 0 (and below 1) every speed is multiplied by a factor drawn from
    1 - unevenness to 1 + unevenness, so that tables need not fall with the layers held. The
    coordinator is in the first region. Raises InvalidProblem.
    """
    if not 1 <= num_regions <= num_nodes:
        raise InvalidProblem(
            f"num_regions is {num_regions} for {num_nodes} nodes; it must be 1 to num_nodes"
        )
    if not 0 <= unevenness < 1:
        raise InvalidProblem(f"unevenness is {unevenness}; it must be 0 or more and below 1")
    for name in mix:
        if name not in PROFILES:
            raise InvalidProblem(f"mix names {name!r}; use names of: {', '.join(PROFILES)}")
    chance = random.Random(seed)  # noqa: S311 - a test cluster, not a secret
    kinds = _kinds(num_nodes, mix)
    chance.shuffle(kinds)
    return Problem(
        name=f"generated-{num_nodes}-nodes-{num_regions}-regions-seed-{seed}",
        model=LLAMA_70B,
        workload=Workload(mean_prompt_tokens=750, mean_output_tokens=240),
        compute_profiles={name: _uneven(PROFILES[name], unevenness, chance) for name in mix},
        cluster=Cluster(
            name="generated",
            coordinator_region="region-0",
            nodes=tuple(
                Node(
                    name=f"node-{index}",
                    region=f"region-{index % num_regions}",
                    compute_profile=kind,
                )
                for index, kind in enumerate(kinds)
            ),
            region_links=_region_links(num_regions),
        ),
        source="planner.generate",
    )


def _kinds(num_nodes: int, mix: Mapping[str, float]) -> list[str]:
    """Profile names, as many of each as its share; those cut off most get what is left over."""
    shares = {name: num_nodes * share / sum(mix.values()) for name, share in mix.items()}
    counts = {name: int(share) for name, share in shares.items()}
    by_rest = sorted(mix, key=lambda name: counts[name] - shares[name])
    for name in by_rest[: num_nodes - sum(counts.values())]:
        counts[name] += 1
    return [name for name, count in counts.items() for _ in range(count)]


def _uneven(profile: ComputeProfile, unevenness: float, chance: random.Random) -> ComputeProfile:
    if unevenness == 0:
        return profile
    speeds = tuple(
        speed * chance.uniform(1 - unevenness, 1 + unevenness) for speed in profile.tokens_per_s
    )
    return replace(profile, tokens_per_s=speeds)


def _region_links(num_regions: int) -> tuple[Link, ...]:
    """Links between all nodes of a region, and slower ones between two regions."""
    regions = [f"region-{number}" for number in range(num_regions)]
    inside, between = bytes_per_s_from_gbit_per_s(10.0), bytes_per_s_from_mbit_per_s(100.0)
    qualities = [(region, region, inside, 0.001) for region in regions]
    qualities += [(source, target, between, 0.05) for source, target in permutations(regions, 2)]
    return tuple(
        Link(source=source, target=target, bandwidth_bytes_per_s=bandwidth, latency_s=latency_s)
        for source, target, bandwidth, latency_s in qualities
    )
