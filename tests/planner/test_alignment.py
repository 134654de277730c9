import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_problems import placed_problems, placement, placements_of, tiny_problem

from planner.domain.placement import Placement
from planner.domain.rules import PlacementRules
from planner.max_flow import max_flow
from planner.placers.alignment import aligned_to
from planner.placers.budgeted_moves import moved_layers

NUM_LAYERS = 6
held = st.none() | st.tuples(st.integers(0, NUM_LAYERS - 1), st.integers(1, 3)).map(
    lambda one: (one[0], min(one[0] + one[1], NUM_LAYERS))
)


@given(st.lists(st.tuples(held, held), min_size=1, max_size=6))
def test_like_nodes_load_as_few_layers_as_in_any_exchange(nodes):
    problem = tiny_problem([[9.0, 5.0, 3.0]] * len(nodes), num_layers=NUM_LAYERS)
    names = [node.name for node in problem.cluster.nodes]
    running, wanted = (
        placement(**{name: one for name, one in zip(names, side, strict=True) if one is not None})
        for side in zip(*nodes, strict=True)
    )
    aligned = aligned_to(problem, wanted, running, rules=PlacementRules())
    exchanges = [
        Placement(
            layers={
                new: wanted.layers[old]
                for old, new in zip(names, order, strict=True)
                if old in wanted.layers
            }
        )
        for order in itertools.permutations(names)
    ]
    assert aligned in exchanges
    assert moved_layers(running, aligned) == min(moved_layers(running, one) for one in exchanges)


@pytest.mark.parametrize("binding_links", [False, True])
@given(data=st.data())
def test_exchanged_nodes_load_no_more_layers_and_carry_the_same_flow(binding_links, data):
    problem, wanted = data.draw(placed_problems(max_nodes=4, binding_links=binding_links))
    running = data.draw(placements_of(problem))
    aligned = aligned_to(problem, wanted, running, rules=PlacementRules())
    assert moved_layers(running, aligned) <= moved_layers(running, wanted)
    assert sorted(map(str, aligned.layers.values())) == sorted(map(str, wanted.layers.values()))
    flows = [
        max_flow(problem, each, partial_inference=True).value_tokens_per_s
        for each in (wanted, aligned)
    ]
    assert flows[0] == pytest.approx(flows[1])


def test_a_node_with_a_link_of_its_own_is_like_no_other():
    problem = tiny_problem([[9.0], [9.0]], num_layers=2, link_tokens_per_s={("n0", "n1"): 3.0})
    wanted, running = placement(n0=(0, 1), n1=(1, 2)), placement(n0=(1, 2), n1=(0, 1))
    assert aligned_to(problem, wanted, running, rules=PlacementRules()) == wanted


def test_nodes_whose_named_links_are_the_same_are_exchanged():
    links = {(one, other): 3.0 for one in ("n0", "n1", "n2") for other in ("n0", "n1", "n2")}
    links = {ends: speed for ends, speed in links.items() if ends[0] != ends[1]}
    problem = tiny_problem([[9.0], [9.0], [5.0]], num_layers=3, link_tokens_per_s=links)
    wanted = placement(n0=(0, 1), n1=(1, 2), n2=(2, 3))
    running = placement(n0=(1, 2), n1=(0, 1), n2=(2, 3))
    assert aligned_to(problem, wanted, running, rules=PlacementRules()) == running
    slower = tiny_problem(
        [[9.0], [9.0], [5.0]], num_layers=3, link_tokens_per_s=links | {("n1", "n2"): 2.0}
    )
    assert aligned_to(slower, wanted, running, rules=PlacementRules()) == wanted


def test_layers_that_are_dropped_cost_nothing():
    assert moved_layers(placement(n0=(0, 4)), placement(n0=(1, 3))) == 0
    assert moved_layers(placement(n0=(0, 4)), placement(n0=(2, 6), n1=(0, 1))) == 3
