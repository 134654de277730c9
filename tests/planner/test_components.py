"""Placements whose components serve apart: no activation goes from one to another."""

import pytest
from tiny_problems import plan_by_hand, tiny_problem

from planner.checked_plan import checked_plan
from planner.domain.errors import InvalidPlacement, InvalidProblem
from planner.domain.placement import LayerRange, Placement
from planner.domain.rules import PlacementRules
from planner.max_flow import max_flow
from planner.placers.alignment import aligned_to
from planner.placers.base import SearchOptions
from planner.placers.board import LargestFlow
from planner.placers.budgeted_moves import climb, moved_layers
from planner.routers.hops import Hops
from planner.routers.kv_estimator import KvEstimator
from planner.serialization.plan_file import plan_from_dict, plan_to_dict

LAYERS = {
    "n0": LayerRange(first=0, end=1),
    "n1": LayerRange(first=1, end=2),
    "n2": LayerRange(first=0, end=1),
    "n3": LayerRange(first=1, end=2),
}
APART = Placement(layers=LAYERS, components=(frozenset({"n0", "n1"}), frozenset({"n2", "n3"})))
# Each pipeline alone is held up by one of its nodes, both together by none.
PROBLEM = tiny_problem([[9.0], [5.0], [2.0], [8.0]], num_layers=2)


def test_flow_stays_within_a_component():
    together = max_flow(PROBLEM, Placement(layers=LAYERS), partial_inference=True)
    apart = max_flow(PROBLEM, APART, partial_inference=True)
    assert together.value_tokens_per_s == pytest.approx(11)
    assert apart.value_tokens_per_s == pytest.approx(5 + 2)
    assert ("n0", "n3") not in {(edge.source, edge.target) for edge in apart.edges}


def test_the_objective_of_searches_keeps_components_apart():
    objective = LargestFlow(PROBLEM, SearchOptions())
    assert objective.tokens_per_s(APART) == pytest.approx(5 + 2)


def test_a_plan_file_keeps_components():
    plan = plan_by_hand(PROBLEM, APART, partial_inference=True)
    assert plan_from_dict(plan_to_dict(plan)) == plan


def test_what_is_left_after_a_loss_stays_in_its_component():
    left = APART.without({"n0"})
    assert left.components == (frozenset({"n1"}), frozenset({"n2", "n3"}))
    assert APART.without({"n0", "n1"}).components == ()


def test_like_nodes_are_exchanged_together_with_their_components():
    alike = tiny_problem([[5.0, 3.0]] * 4, num_layers=2)
    running = Placement(layers={"n0": LAYERS["n1"], "n1": LAYERS["n0"]})
    aligned = aligned_to(alike, APART, running, rules=PlacementRules())
    assert moved_layers(running, aligned) == 2
    flows = [max_flow(alike, each, partial_inference=True) for each in (APART, aligned)]
    assert flows[0].value_tokens_per_s == flows[1].value_tokens_per_s == pytest.approx(10)
    assert sorted(map(len, aligned.components)) == [2, 2]


def test_a_climb_leaves_components_apart():
    more = tiny_problem([[9.0], [5.0], [2.0], [8.0], [4.0], [4.0]], num_layers=2)
    found = climb(
        more,
        APART,
        APART,
        rules=PlacementRules(),
        budget_layers=2,
        value_of=lambda each: max_flow(more, each, partial_inference=True).value_tokens_per_s,
        tries=200,
        seed=0,
    )
    best = list(found)[-1]
    assert len(best.components) == 2
    assert max_flow(more, best, partial_inference=True).value_tokens_per_s > 5 + 2


@pytest.mark.parametrize(
    ("components", "named"),
    [
        ((frozenset({"n0", "n1", "n2", "n3", "n9"}),), "'n9', which holds no layers"),
        ((frozenset({"n0", "n1", "n2"}), frozenset({"n2", "n3"})), "more than one .* 'n2'"),
        ((frozenset({"n0", "n1", "n2"}),), "no component has 'n3'"),
    ],
)
def test_components_must_divide_the_nodes(components, named):
    with pytest.raises(InvalidPlacement, match=named):
        Placement(layers=LAYERS, components=components)


def test_a_plan_file_with_wrong_components_is_refused():
    document = plan_to_dict(
        checked_plan(
            PROBLEM,
            APART,
            partial_inference=True,
            max_hops=None,
            upper_bound_tokens_per_s=11.0,
            placer="test",
            solver="none",
            stop_reason="heuristic",
            elapsed_s=0.0,
        )
    )
    with pytest.raises(InvalidProblem, match="components: no component has 'n2'"):
        plan_from_dict(document | {"components": [["n0", "n1"]]})
    with pytest.raises(InvalidProblem, match=r"components\[1\]"):
        plan_from_dict(document | {"components": [["n0", "n1"], "n2"]})


def test_routing_weights_between_components_are_refused():
    with pytest.raises(InvalidPlacement, match="n0 -> n3: they are in components 0 and 1"):
        Hops(
            routing_weights={"source": {"n0": 1.0}, "n0": {"n3": 1.0}, "n3": {"sink": 1.0}},
            placement=APART,
            num_layers=2,
            partial_inference=True,
            kv=KvEstimator(capacity_token_layers=dict.fromkeys(LAYERS, 100.0), page_tokens=1),
        )
