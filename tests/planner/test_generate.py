from collections import Counter
from itertools import pairwise

import pytest

from planner.capacity import check_cluster_can_hold_model
from planner.domain.errors import InvalidProblem
from planner.generate import PROFILES, generated_cluster
from planner.link_matrix import link_capacities_tokens_per_s


def test_a_cluster_has_the_asked_mix_to_within_one_node():
    problem = generated_cluster(num_nodes=101, num_regions=4, seed=5)
    kinds = Counter(node.compute_profile for node in problem.cluster.nodes)
    assert kinds.total() == 101
    for name, share in {"A100": 0.15, "V100": 0.20, "L4": 0.30, "T4": 0.35}.items():
        assert abs(kinds[name] - 101 * share) <= 1
    regions = Counter(node.region for node in problem.cluster.nodes)
    assert max(regions.values()) - min(regions.values()) <= 1
    check_cluster_can_hold_model(problem)


def test_the_seed_decides_and_nothing_else():
    first = generated_cluster(num_nodes=40, num_regions=3, seed=7, unevenness=0.2)
    assert generated_cluster(num_nodes=40, num_regions=3, seed=7, unevenness=0.2) == first
    assert generated_cluster(num_nodes=40, num_regions=3, seed=8, unevenness=0.2) != first


def test_links_are_slow_between_regions_only():
    problem = generated_cluster(num_nodes=4, num_regions=2, seed=0)
    between, inside = link_capacities_tokens_per_s(problem, ["node-0", "node-1", "node-2"])[0, 1:]
    assert inside == pytest.approx(1.25e9 / 16384)
    assert between == pytest.approx(12.5e6 / 16384)


def test_unevenness_makes_tables_that_do_not_fall_with_layers():
    problem = generated_cluster(num_nodes=20, num_regions=1, seed=1, unevenness=0.6)
    tables = [profile.tokens_per_s for profile in problem.compute_profiles.values()]
    assert any(after > before for table in tables for before, after in pairwise(table))
    for name, profile in problem.compute_profiles.items():
        for speed, published in zip(profile.tokens_per_s, PROFILES[name].tokens_per_s, strict=True):
            assert 0.4 * published <= speed <= 1.6 * published


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_regions": 0}, "num_regions is 0 for 10 nodes"),
        ({"num_regions": 11}, "num_regions is 11 for 10 nodes"),
        ({"num_regions": 1, "unevenness": 1.0}, r"unevenness is 1\.0"),
        ({"num_regions": 1, "mix": {"H100": 1.0}}, "mix names 'H100'; use names of: A100"),
    ],
)
def test_what_makes_no_cluster_is_refused(values, message):
    with pytest.raises(InvalidProblem, match=message):
        generated_cluster(num_nodes=10, seed=0, **values)
