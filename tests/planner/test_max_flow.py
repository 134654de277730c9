import json
import os
import subprocess
import sys
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_problems import (
    coverage,
    placed_problems,
    placement,
    smallest_cut_by_enumeration,
    tiny_problem,
)

from planner.domain.cluster import COORDINATOR, SINK, SOURCE
from planner.domain.errors import InvalidPlacement
from planner.flow_check import check_flow, flow_value_by_second_method
from planner.flow_graph import build_flow_graph
from planner.linear_flow import solve_linear_flow
from planner.max_flow import max_flow, mean_hops, routing_weights
from tests.examples import examples

quick = settings(max_examples=examples(60))


@quick
@given(placed=placed_problems(max_nodes=3), partial_inference=st.booleans())
def test_the_flow_equals_the_lightest_of_all_cuts(placed, partial_inference):
    problem, layers = placed
    flow = max_flow(problem, layers, partial_inference=partial_inference)
    lightest = smallest_cut_by_enumeration(problem, layers, partial_inference=partial_inference)
    assert flow.value_tokens_per_s == pytest.approx(lightest, rel=1e-6, abs=1e-6)


def flow_value_by_linear_program(problem, layers, *, partial_inference):
    graph = build_flow_graph(problem, layers, partial_inference=partial_inference)
    return solve_linear_flow(graph, ()).value_tokens_per_s


@quick
@given(placed=placed_problems(), partial_inference=st.booleans())
def test_the_flow_passes_its_check_and_two_other_methods_agree(placed, partial_inference):
    problem, layers = placed
    flow = max_flow(problem, layers, partial_inference=partial_inference)
    check_flow(flow)
    for value_by in (flow_value_by_linear_program, flow_value_by_second_method):
        second = value_by(problem, layers, partial_inference=partial_inference)
        assert second == pytest.approx(flow.value_tokens_per_s, rel=1e-6, abs=1e-6)


@quick
@given(placed=placed_problems(), partial_inference=st.booleans())
def test_networkx_finds_the_same_flow_on_the_public_graph(placed, partial_inference):
    problem, layers = placed
    graph = build_flow_graph(problem, layers, partial_inference=partial_inference).to_networkx()
    flow = max_flow(problem, layers, partial_inference=partial_inference).value_tokens_per_s
    assert nx.maximum_flow_value(
        graph, SOURCE, SINK, flow_func=nx.algorithms.flow.edmonds_karp
    ) == pytest.approx(flow, rel=1e-6, abs=1e-6)


@quick
@given(placed=placed_problems(binding_links=False))
def test_without_binding_links_the_flow_is_the_coverage_of_the_worst_layer(placed):
    problem, layers = placed
    flow = max_flow(problem, layers, partial_inference=True)
    assert flow.value_tokens_per_s == pytest.approx(coverage(problem, layers), abs=1e-6)


@quick
@given(placed=placed_problems())
def test_forbidding_partial_inference_never_gains_flow(placed):
    problem, layers = placed
    with_it = max_flow(problem, layers, partial_inference=True).value_tokens_per_s
    without = max_flow(problem, layers, partial_inference=False).value_tokens_per_s
    assert without <= with_it + 1e-6


def test_the_example_of_the_paper_is_limited_by_its_slow_link():
    """Two stages, two nodes each; the link between the fast ones carries 10 tokens/s only."""
    problem = tiny_problem(
        [[60.0, 50.0], [60.0, 50.0], [20.0, 15.0]],
        num_layers=4,
        link_tokens_per_s={("n0", "n1"): 10.0},
    )
    layers = placement(n0=(0, 2), n1=(2, 4), n2=(2, 4))
    flow = max_flow(problem, layers, partial_inference=False)
    assert flow.value_tokens_per_s == pytest.approx(25.0)
    assert flow.min_cut.nodes == ("n2",)
    assert flow.min_cut.edges == (("n0", "n1"),)
    assert flow.nodes["n0"].utilisation == pytest.approx(0.5)
    assert routing_weights(flow) == {
        SOURCE: {"n0": pytest.approx(25.0)},
        "n0": {"n1": pytest.approx(10.0), "n2": pytest.approx(15.0)},
        "n1": {SINK: pytest.approx(10.0)},
        "n2": {SINK: pytest.approx(15.0)},
    }
    assert mean_hops(flow) == pytest.approx(2.0)


def test_overlapping_layers_carry_flow_only_with_partial_inference():
    problem = tiny_problem([[9.0, 9.0, 9.0], [7.0, 7.0, 7.0]], num_layers=4)
    layers = placement(n0=(0, 3), n1=(1, 4))
    assert max_flow(problem, layers, partial_inference=True).value_tokens_per_s == pytest.approx(7)
    flow = max_flow(problem, layers, partial_inference=False)
    assert flow.value_tokens_per_s == 0.0
    assert mean_hops(flow) == 0.0
    assert routing_weights(flow) == {}


def test_a_coordinator_link_can_be_the_limit():
    problem = tiny_problem([[9.0, 9.0]], num_layers=2, link_tokens_per_s={("n0", COORDINATOR): 4.0})
    flow = max_flow(problem, placement(n0=(0, 2)), partial_inference=True)
    assert flow.value_tokens_per_s == pytest.approx(4.0)
    assert flow.min_cut.edges == (("n0", SINK),)


def test_a_placement_without_nodes_has_no_flow():
    problem = tiny_problem([[9.0, 9.0]], num_layers=2)
    assert max_flow(problem, placement(), partial_inference=True).value_tokens_per_s == 0.0
    assert flow_value_by_linear_program(problem, placement(), partial_inference=True) == 0.0


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ({"n7": (0, 1)}, ["'n7'", "not a node", "use the cluster's node names"]),
        ({"n0": (1, 4)}, ["[1, 4)", "has 3 layers", "at most 3"]),
        ({"n0": (0, 3)}, ["holds 3 layers", "memory for 2", "give it fewer"]),
    ],
)
def test_an_impossible_placement_is_refused_with_its_reason(layers, words):
    problem = tiny_problem([[9.0, 9.0], [9.0]], num_layers=3)
    with pytest.raises(InvalidPlacement) as caught:
        max_flow(problem, placement(**layers), partial_inference=True)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.processes
def test_the_same_placement_gives_the_same_weights_in_every_process():
    program = """
import json
from tiny_problems import placement, tiny_problem
from planner.max_flow import max_flow, routing_weights
problem = tiny_problem([[5.0, 5.0]] * 8, num_layers=4)
layers = placement(**{f"n{i}": (0, 2) if i % 2 else (2, 4) for i in range(8)})
print(json.dumps(routing_weights(max_flow(problem, layers, partial_inference=True))))
"""
    here = Path(__file__).parent
    found = []
    for seed in ("1", "2", "3"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join((str(here), str(here.parent.parent))),
        }
        output = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        found.append(json.loads(output))
    assert found[0] == found[1] == found[2]


def test_a_node_that_is_too_slow_to_do_anything_carries_nothing():
    problem = tiny_problem([[0.0, 0.0], [9.0, 8.0]], num_layers=2)
    flow = max_flow(problem, placement(n0=(0, 1), n1=(1, 2)), partial_inference=False)
    assert flow.value_tokens_per_s == 0.0
    assert flow.nodes["n0"].flow_tokens_per_s == 0.0
