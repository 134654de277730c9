"""The model against the paper's tables, and against every placement of a tiny cluster."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_problems import (
    all_placements,
    placed_problems,
    placement,
    problems,
    tiny_problem,
)

from planner.bounds.best import upper_bound_tokens_per_s
from planner.domain.cluster import SINK, SOURCE
from planner.domain.flow import Flow, MinCut
from planner.domain.rules import PlacementRules
from planner.max_flow import max_flow
from planner.placers.milp_model import build_placement_model
from planner.placers.pruning import node_links
from tests.examples import examples

NO_FLOW = Flow(
    value_tokens_per_s=0.0,
    edges=(),
    nodes={},
    min_cut=MinCut(nodes=(), edges=(), capacity_tokens_per_s=0.0),
)


def model_of(problem, *, partial_inference, rules=None):
    return build_placement_model(
        problem,
        node_links=node_links(problem),
        partial_inference=partial_inference,
        upper_bound_tokens_per_s=upper_bound_tokens_per_s(problem),
        rules=rules or PlacementRules(),
    )


def violations(model, values):
    """Rows, bounds and integrality that `values` breaks, by how much."""
    worst = []
    for row in range(model.num_rows):
        entries = range(model.row_starts[row], model.row_starts[row + 1])
        total = sum(model.coefficients[k] * values[model.columns[k]] for k in entries)
        if not model.row_lower[row] - 1e-6 <= total <= model.row_upper[row] + 1e-6:
            worst.append((row, total, model.row_lower[row], model.row_upper[row]))
    for column, value in enumerate(values):
        if not -1e-6 <= value <= model.upper[column] + 1e-6:
            worst.append((column, value))
        if model.is_integer[column] and value != round(value):
            worst.append((column, value))
    return worst


@pytest.mark.parametrize(
    ("counts_and_layers", "variables", "rows"),
    [
        ([(4, 12), (8, 7), (12, 4)], 1376, 1848),
        ([(4, 12), (6, 4), (8, 7), (10, 4), (4, 14), (6, 9), (4, 18)], 4004, 5502),
    ],
)
def test_problem_sizes_are_those_of_table_8(counts_and_layers, variables, rows):
    """24 and 42 nodes, no pruning, no partial inference; one row more is share_the_work."""
    speeds = [
        [100.0 / j for j in range(1, layers + 1)]
        for count, layers in counts_and_layers
        for _ in range(count)
    ]
    built = model_of(tiny_problem(speeds, num_layers=80), partial_inference=False)
    assert built.model.num_variables == variables
    assert built.model.num_rows == rows + 1


@settings(max_examples=examples(80))
@given(placed=placed_problems(), partial_inference=st.booleans())
def test_every_placement_with_its_max_flow_is_a_solution(placed, partial_inference):
    problem, placement_of_problem = placed
    flow = max_flow(problem, placement_of_problem, partial_inference=partial_inference)
    built = model_of(problem, partial_inference=partial_inference)
    values = built.values_of(placement_of_problem, flow)
    assert violations(built.model, values) == []
    total = sum(c * v for c, v in zip(built.model.objective, values, strict=True))
    assert total * built.flow_unit_tokens_per_s == pytest.approx(
        flow.value_tokens_per_s, rel=1e-6, abs=1e-6
    )
    placed_again = built.placement_of(values)
    for name, held in placement_of_problem.layers.items():
        assert placed_again.layers[name] == held


@settings(max_examples=examples(15))
@given(problem=problems(max_nodes=2), partial_inference=st.booleans())
def test_a_link_may_be_valid_exactly_where_the_placement_connects(problem, partial_inference):
    """Constraint 4, both directions: for every placement, d = 1 on one link at a time is a solution
    if and only if the flow graph has that connection."""
    built = model_of(problem, partial_inference=partial_inference)
    num_layers = problem.model.num_layers
    for placed in all_placements(problem):
        if len(placed.layers) < len(problem.cluster.nodes):
            continue
        for (source, target), valid in built.variables.valid.items():
            values = built.values_of(placed, NO_FLOW)
            values[valid] = 1.0
            for switches in (built.variables.cond1, built.variables.cond2):
                if (source, target) in switches:
                    values[switches[source, target]] = 1.0
            if source == SOURCE:
                connected = placed.layers[target].first == 0
            elif target == SINK:
                connected = placed.layers[source].end == num_layers
            else:
                before, after = placed.layers[source], placed.layers[target]
                connected = (
                    after.first <= before.end < after.end
                    if partial_inference
                    else after.first == before.end
                )
            assert (violations(built.model, values) == []) == connected


def test_flow_needs_a_valid_link_a_fast_enough_one_and_a_fast_enough_node():
    problem = tiny_problem(
        [[10.0], [10.0], [10.0]], num_layers=2, link_tokens_per_s={("n0", "n1"): 3.0}
    )
    placed = placement(n0=(0, 1), n1=(1, 2), n2=(1, 2))
    flow = max_flow(problem, placed, partial_inference=False)
    built = model_of(problem, partial_inference=False)
    values = built.values_of(placed, flow)
    unit = built.flow_unit_tokens_per_s
    path = [(SOURCE, "n0"), ("n0", "n1"), ("n1", SINK)]

    def more_along_path(tokens_per_s):
        changed = list(values)
        for edge in path:
            changed[built.variables.flow[edge]] += tokens_per_s / unit
        return changed

    used = values[built.variables.flow["n0", "n1"]] * unit
    assert violations(built.model, more_along_path(-used)) == []
    assert violations(built.model, more_along_path(3.5 - used))
    closed = list(values)
    closed[built.variables.valid[SOURCE, "n0"]] = 0.0
    assert violations(built.model, closed)


def test_a_node_without_memory_for_a_layer_is_not_in_the_model():
    problem = tiny_problem([[9.0], [], [9.0]], num_layers=2)
    built = model_of(problem, partial_inference=True)
    assert set(built.variables.first_layer) == {"n0", "n2"}
    assert not any("n1" in edge for edge in built.links)


def test_sharing_the_work_cuts_off_no_integer_solution():
    """The row that is ours, alone: L F <= sum j T_j holds for the best flow of every placement."""
    rng = random.Random(0)
    for _ in range(20):
        speeds = [sorted((rng.uniform(1, 99) for _ in range(2)), reverse=True) for _ in range(2)]
        problem = tiny_problem(speeds, num_layers=3)
        for placed, partial in itertools.product(all_placements(problem), (True, False)):
            flow = max_flow(problem, placed, partial_inference=partial).value_tokens_per_s
            work = sum(
                len(held) * problem.profile_of(name).tokens_per_s[len(held) - 1]
                for name, held in placed.layers.items()
            )
            assert 3 * flow <= work * (1 + 1e-9)
