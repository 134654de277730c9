from dataclasses import replace

import pytest
from tiny_problems import tiny_problem

from planner.capacity import (
    ModelDoesNotFit,
    check_cluster_can_hold_model,
    max_layers,
    throughput_tokens_per_s,
)
from planner.domain.cluster import COORDINATOR, Cluster, Node
from planner.link_matrix import link_capacities_tokens_per_s


def test_a_link_between_nodes_carries_activations_and_one_to_the_coordinator_tokens():
    problem = tiny_problem(
        [[9.0], [9.0]],
        num_layers=2,
        link_tokens_per_s={("n0", "n1"): 7.0, (COORDINATOR, "n0"): 5.0, ("n1", COORDINATOR): 3.0},
    )
    capacities = link_capacities_tokens_per_s(problem, ["n0", "n1", COORDINATOR])
    assert capacities[0, 1] == pytest.approx(7.0)
    assert capacities[2, 0] == pytest.approx(5.0)
    assert capacities[1, 2] == pytest.approx(3.0)


def test_nodes_without_a_link_have_no_capacity_between_them():
    problem = tiny_problem([[9.0], [9.0]], num_layers=2)
    apart = replace(
        problem,
        cluster=Cluster(
            name="apart",
            coordinator_region="here",
            nodes=(
                problem.cluster.nodes[0],
                Node(name="n1", region="there", compute_profile="p(9.0,)"),
            ),
            region_links=problem.cluster.region_links,
        ),
    )
    assert link_capacities_tokens_per_s(apart, ["n0", "n1"])[0, 1] == 0.0


def test_a_node_never_holds_more_layers_than_the_model_has():
    problem = tiny_problem([[9.0, 8.0, 7.0]], num_layers=2)
    assert max_layers(problem, "n0") == 2
    assert throughput_tokens_per_s(problem, "n0", 2) == 8.0
    assert throughput_tokens_per_s(problem, "n0", 3) == 0.0
    assert throughput_tokens_per_s(problem, "n0", 0) == 0.0


def test_a_cluster_that_cannot_hold_the_model_is_told_how_much_is_missing():
    problem = tiny_problem([[9.0, 8.0], [9.0]], num_layers=8)
    with pytest.raises(ModelDoesNotFit) as caught:
        check_cluster_can_hold_model(problem)
    message = str(caught.value)
    assert "can hold 3 layers" in message
    assert "has 8" in message
    assert "add nodes for 5 more layers (3 of the largest profile would do)" in message


def test_a_cluster_that_holds_the_model_exactly_is_accepted():
    check_cluster_can_hold_model(tiny_problem([[9.0, 8.0], [9.0]], num_layers=3))
