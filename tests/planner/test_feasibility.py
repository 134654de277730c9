from dataclasses import replace

import pytest
from tiny_problems import placement, tiny_problem

from planner.capacity import ModelDoesNotFit, allowed_layers, max_layers, throughput_tokens_per_s
from planner.domain.cluster import COORDINATOR, Link, Node
from planner.domain.placement import LayerRange
from planner.domain.rules import InvalidRules, PlacementRules
from planner.feasibility import ModelOutOfReach, check_reach, check_rules, restricted_problem
from planner.max_flow import max_flow

PROBLEM_OF_TWO = tiny_problem([[9.0, 5.0]] * 2, num_layers=3)
PROBLEM = tiny_problem([[90.0, 50.0, 30.0], [40.0, 20.0], [40.0, 20.0]], num_layers=5)


def with_kv(problem, capacities):
    return replace(
        problem,
        compute_profiles={
            name: replace(profile, kv_capacity_token_layers=tuple(capacities[: profile.max_layers]))
            for name, profile in problem.compute_profiles.items()
        },
    )


def test_without_rules_a_node_may_hold_what_its_memory_holds():
    assert [allowed_layers(PROBLEM, f"n{i}", PlacementRules()) for i in range(3)] == [3, 2, 2]


def test_the_strictest_limit_counts():
    rules = PlacementRules(
        max_layers_per_node=2, max_layers_of={"n1": 1}, excluded_nodes=frozenset({"n2"})
    )
    assert [allowed_layers(PROBLEM, f"n{i}", rules) for i in range(3)] == [2, 1, 0]


def test_a_kv_reserve_leaves_room_for_that_many_tokens_on_every_layer_held():
    problem = with_kv(PROBLEM, [900.0, 800.0, 300.0])
    limits = [
        allowed_layers(problem, "n0", PlacementRules(kv_reserve_tokens=tokens))
        for tokens in (0, 100, 101, 400, 401, 900, 901)
    ]
    assert limits == [3, 3, 2, 2, 1, 1, 0]


def test_a_placement_has_the_same_flow_in_the_restricted_problem():
    rules = PlacementRules(max_layers_of={"n0": 2}, excluded_nodes=frozenset({"n2"}))
    placed = placement(n0=(0, 2), n1=(2, 4))
    problem = replace(PROBLEM, model=replace(PROBLEM.model, num_layers=4))
    restricted = restricted_problem(problem, rules)
    assert [node.name for node in restricted.cluster.nodes] == ["n0", "n1"]
    assert max_layers(restricted, "n0") == 2
    assert max_flow(restricted, placed, partial_inference=True) == max_flow(
        problem, placed, partial_inference=True
    )


def test_applying_rules_twice_changes_nothing_more():
    rules = PlacementRules(max_layers_of={"n0": 2})
    once = restricted_problem(PROBLEM, rules)
    assert restricted_problem(once, rules) == once


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"excluded_nodes": frozenset({"n9"})}, "'n9' is excluded but is not a node"),
        ({"max_layers_of": {"n9": 1}}, "'n9' is limited in layers but is not a node"),
        ({"pinned": {"n9": LayerRange(first=0, end=1)}}, "'n9' is pinned but is not a node"),
        ({"pinned": {"n0": LayerRange(first=3, end=6)}}, "the end must be at most"),
        (
            {"pinned": {"n1": LayerRange(first=0, end=3)}},
            r"'n1' is pinned to 3 layers \[0, 3\) but its profile .* has memory for 2",
        ),
        (
            {"pinned": {"n0": LayerRange(first=0, end=3)}, "max_layers_per_node": 2},
            r"'n0' is pinned to 3 layers .* the rules leave its profile .* \(memory for 3\) 2",
        ),
        ({"excluded_nodes": frozenset({"n0", "n1", "n2"})}, "all 3 nodes .* are excluded"),
    ],
)
def test_rules_that_contradict_the_problem_name_both(rules, words):
    with pytest.raises(InvalidRules, match=words):
        check_rules(PROBLEM, PlacementRules(**rules))


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (
            {"excluded_nodes": frozenset({"n0"})},
            r"can hold 4 layers .*layers \[4, 5\) cannot be held: 1 MB",
        ),
        (
            {"pinned": {"n0": LayerRange(first=0, end=1), "n1": LayerRange(first=0, end=1)}},
            r"leave layers \[1, 5\) to nodes that can hold 2 of these 4; 2 layers",
        ),
        ({"max_hops": 1}, r"1 largest nodes hold 3 of 5 layers; layers \[3, 5\) .* allow 2 hops"),
    ],
)
def test_what_cannot_be_held_is_named(rules, words):
    with pytest.raises(ModelDoesNotFit, match=words):
        check_rules(PROBLEM, PlacementRules(**rules))


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"kv_reserve_tokens": 901.0}, "reserve KV room for fewer tokens than 901"),
        ({"max_layers_per_node": 1}, "allow more layers than 1 on a node"),
        (
            {"excluded_nodes": frozenset({"n0"}), "max_layers_of": {"n1": 1, "n2": 0}},
            "exclude fewer nodes than 1, or allow more layers on n1, n2",
        ),
    ],
)
def test_rules_that_leave_too_little_memory_are_named(rules, words):
    problem = with_kv(PROBLEM, [900.0, 800.0, 300.0])
    with pytest.raises(ModelDoesNotFit, match=f"cannot be held: .* the model fits: {words}$"):
        check_rules(problem, PlacementRules(**rules))


def test_rules_are_not_blamed_for_memory_that_is_not_there():
    problem = replace(PROBLEM, model=replace(PROBLEM.model, num_layers=8))
    with pytest.raises(ModelDoesNotFit, match="can hold 7 layers") as caught:
        check_rules(problem, PlacementRules(max_layers_per_node=1))
    assert "rules" not in str(caught.value)


def test_rules_that_fit_pass():
    check_rules(PROBLEM, PlacementRules(max_hops=2, pinned={"n0": LayerRange(first=2, end=5)}))


@pytest.mark.parametrize(
    "rules",
    [
        {"max_hops": 0},
        {"max_layers_per_node": 0},
        {"max_layers_of": {"n0": -1}},
        {"kv_reserve_tokens": -1.0},
        {"kv_reserve_tokens": float("inf")},
        {"excluded_nodes": frozenset({"a"}), "pinned": {"a": LayerRange(first=0, end=1)}},
    ],
)
def test_rules_out_of_range_are_refused(rules):
    with pytest.raises(InvalidRules):
        PlacementRules(**rules)


def test_a_coordinator_without_links_is_named_with_what_to_add():
    alone = replace(
        PROBLEM_OF_TWO,
        cluster=replace(PROBLEM_OF_TWO.cluster, coordinator_region="far"),
    )
    with pytest.raises(ModelOutOfReach) as refused:
        check_reach(alone)
    for words in (
        "no link leads from the coordinator to any node",
        "from any node back to the coordinator",
        "region pairs between its region 'far' and 'here'",
    ):
        assert words in str(refused.value)


def test_links_to_the_coordinator_only_are_not_enough():
    link = Link(source="n1", target=COORDINATOR, bandwidth_bytes_per_s=9.0, latency_s=0.0)
    cluster = replace(PROBLEM_OF_TWO.cluster, coordinator_region="far", links=(link,))
    with pytest.raises(ModelOutOfReach, match=r"^no link leads from the coordinator to any node"):
        check_reach(replace(PROBLEM_OF_TWO, cluster=cluster))


def test_nodes_that_no_request_reaches_hold_nothing_of_use():
    links = tuple(
        Link(source=source, target=target, bandwidth_bytes_per_s=9.0, latency_s=0.0)
        for source, target in ((COORDINATOR, "n0"), ("n0", "n1"), ("n0", COORDINATOR))
    )
    cluster = replace(PROBLEM_OF_TWO.cluster, region_links=(), links=links)
    with pytest.raises(ModelOutOfReach, match=r"1 nodes .* can hold 2 of 3 layers; .*'n1'"):
        check_reach(replace(PROBLEM_OF_TWO, cluster=cluster))
    back = Link(source="n1", target=COORDINATOR, bandwidth_bytes_per_s=9.0, latency_s=0.0)
    check_reach(replace(PROBLEM_OF_TWO, cluster=replace(cluster, links=(*links, back))))


def test_a_limited_profile_takes_no_name_that_another_profile_has():
    fast, slow = tiny_problem([[100.0, 100.0]], num_layers=2), tiny_problem([[7.0]], num_layers=2)
    (quick,), (lame,) = fast.compute_profiles.values(), slow.compute_profiles.values()
    profiles = {
        "X": replace(quick, name="X", max_layers=2),
        "X, 1 layers": replace(lame, name="X, 1 layers"),
    }
    nodes = tuple(
        Node(name=name, region="here", compute_profile=profile)
        for name, profile in (("n0", "X"), ("n1", "X"), ("n2", "X, 1 layers"))
    )
    problem = replace(fast, compute_profiles=profiles, cluster=replace(fast.cluster, nodes=nodes))
    limited = restricted_problem(problem, PlacementRules(max_layers_of={"n0": 1}))
    speeds = [throughput_tokens_per_s(limited, f"n{i}", 1) for i in range(3)]
    assert speeds == [100.0, 100.0, 7.0]
    assert [max_layers(limited, f"n{i}") for i in range(3)] == [1, 2, 1]
