import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_problems import placed_problems, placement, placements_of, tiny_problem

from planner.domain.rules import PlacementRules
from planner.max_flow import max_flow
from planner.placers.alignment import aligned_to, assignment
from planner.placers.budgeted_moves import moved_layers

costs = st.integers(1, 6).flatmap(
    lambda size: st.lists(
        st.lists(st.integers(0, 20), min_size=size, max_size=size), min_size=size, max_size=size
    )
)


@given(costs)
def test_an_assignment_costs_as_little_as_any_permutation(matrix):
    columns = assignment(matrix)
    assert sorted(columns) == list(range(len(matrix)))
    found = sum(row[column] for row, column in zip(matrix, columns, strict=True))
    assert found == min(
        sum(row[column] for row, column in zip(matrix, order, strict=True))
        for order in itertools.permutations(range(len(matrix)))
    )


@given(st.data(), placed_problems(max_nodes=4, binding_links=False))
def test_exchanged_nodes_load_no_more_layers_and_carry_the_same_flow(data, placed):
    problem, wanted = placed
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


def test_layers_that_are_dropped_cost_nothing():
    assert moved_layers(placement(n0=(0, 4)), placement(n0=(1, 3))) == 0
    assert moved_layers(placement(n0=(0, 4)), placement(n0=(2, 6), n1=(0, 1))) == 3
