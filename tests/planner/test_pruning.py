"""Which links survive pruning."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_problems import problems, tiny_problem

from planner.domain.cluster import Link
from planner.placers.pruning import node_links, prune_links
from tests.examples import examples


def two_regions(nodes_per_region):
    """Fast links inside each half of the cluster, slow ones between the halves."""
    count = 2 * nodes_per_region
    names = [f"n{index}" for index in range(count)]
    speeds = {
        (a, b): 1000.0
        if (int(a[1:]) < nodes_per_region) == (int(b[1:]) < nodes_per_region)
        else 1.0
        for a in names
        for b in names
        if a != b
    }
    return tiny_problem([[9.0]] * count, num_layers=2, link_tokens_per_s=speeds)


def closure(links):
    """Every (a, b) such that b can be reached from a."""
    reached = set(links)
    while True:
        longer = {(a, d) for a, b in reached for c, d in links if b == c} | reached
        if longer == reached:
            return reached
        reached = longer


@settings(max_examples=examples(60))
@given(data=st.data(), problem=problems(max_nodes=6), degree=st.floats(0.1, 5.0))
def test_pruning_keeps_what_it_must_and_who_reaches_whom(data, problem, degree):
    every = node_links(problem)
    present = tuple(data.draw(st.lists(st.sampled_from(every), unique=True)))
    keep = frozenset(data.draw(st.lists(st.sampled_from(present), unique=True)) if present else ())
    pruned = prune_links(problem, present, average_degree=degree, keep=keep, seed=1)
    assert keep <= set(pruned) <= set(present)
    assert closure(pruned) == closure(present)


@pytest.mark.parametrize("degree", [2.0, 3.0, 4.5])
def test_a_dense_cluster_is_pruned_to_the_degree_exactly(degree):
    problem = two_regions(5)
    pruned = prune_links(
        problem, node_links(problem), average_degree=degree, keep=frozenset(), seed=0
    )
    assert len(pruned) == degree * 10


def test_slow_links_go_before_fast_ones_but_regions_stay_joined():
    problem = two_regions(4)
    pruned = prune_links(problem, node_links(problem), average_degree=3.0, keep=frozenset(), seed=0)
    slow = [link for link in pruned if (int(link[0][1:]) < 4) != (int(link[1][1:]) < 4)]
    assert len(slow) == 2  # one each way
    assert len(pruned) == 24


def test_a_degree_above_what_there_is_prunes_nothing():
    problem = two_regions(2)
    links = node_links(problem)
    assert prune_links(problem, links, average_degree=50.0, keep=frozenset(), seed=0) == links


def test_equally_fast_links_are_cut_by_seeded_chance():
    problem = tiny_problem([[9.0]] * 8, num_layers=2)
    links = node_links(problem)
    first, again, other = (
        prune_links(problem, links, average_degree=3.0, keep=frozenset(), seed=seed)
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_only_pairs_with_a_link_are_listed():
    problem = tiny_problem([[9.0], [9.0]], num_layers=2)
    one_way = Link(source="n0", target="n1", bandwidth_bytes_per_s=1.0, latency_s=0.0)
    problem = replace(problem, cluster=replace(problem.cluster, region_links=(), links=(one_way,)))
    assert node_links(problem) == (("n0", "n1"),)
