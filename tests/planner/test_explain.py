from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_networks import egress, sharing
from tiny_problems import placed_problems, placement, tiny_problem

from planner.capacity import max_layers
from planner.domain.cluster import Link
from planner.domain.placement import LayerRange, Placement
from planner.domain.rules import PlacementRules
from planner.explanation import explain_min_cut, marginal_values
from planner.larger_problems import with_one_more_node
from planner.max_flow import max_flow
from planner.objectives.trial import Trials
from planner.plan_options import PlanOptions
from planner.planning import objective_of
from planner.robust import Survival, survival
from tests.examples import examples

TWO_KINDS = tiny_problem([[90.0, 50.0], [40.0, 20.0], [40.0, 20.0]], num_layers=4)
PLACED = placement(n0=(0, 2), n1=(2, 4), n2=(2, 4))


def value_of(problem, layers, resource, **options):
    values = marginal_values(
        problem, layers, options=PlanOptions(**{"objective": "flow"} | options)
    )
    (value,) = (value for value in values if value.resource == resource)
    return value


@settings(max_examples=examples(60))
@given(placed_problems(max_nodes=3), st.booleans())
def test_an_added_node_is_worth_what_trying_all_its_ranges_finds(placed, partial_inference):
    problem, layers = placed
    values = {
        value.resource: value
        for value in marginal_values(
            problem,
            layers,
            options=PlanOptions(objective="flow", partial_inference=partial_inference),
        )
    }
    for resource, larger in with_one_more_node(problem):
        name = larger.cluster.nodes[-1].name
        flows = [max_flow(larger, layers, partial_inference=partial_inference).value_tokens_per_s]
        for length in range(1, max_layers(larger, name) + 1):
            for first in range(problem.model.num_layers - length + 1):
                held = LayerRange(first=first, end=first + length)
                tried = Placement(layers=dict(layers.layers) | {name: held})
                flow = max_flow(larger, tried, partial_inference=partial_inference)
                flows.append(flow.value_tokens_per_s)
        assert values[resource].kept_tokens_per_s == pytest.approx(max(flows), abs=1e-6)
        assert values[resource].before_tokens_per_s == pytest.approx(flows[0])


def test_wider_links_are_worth_what_the_new_max_flow_says():
    slow = tiny_problem(
        [[90.0, 50.0], [40.0, 20.0], [40.0, 20.0]],
        num_layers=4,
        link_tokens_per_s={("n0", "n1"): 5.0},
    )
    value = value_of(slow, PLACED, "+10 % of link n0 -> n1")
    assert value.before_tokens_per_s == pytest.approx(25.0)
    assert value.kept_tokens_per_s == pytest.approx(25.5)
    assert value.gain == pytest.approx(0.02)


def test_links_that_only_regions_define_are_widened_together():
    slow = replace(
        TWO_KINDS,
        cluster=replace(
            TWO_KINDS.cluster,
            region_links=(
                Link(source="here", target="here", bandwidth_bytes_per_s=700.0, latency_s=0.0),
            ),
        ),
    )
    value = value_of(slow, PLACED, "+10 % of every link here -> here")
    assert value.kept_tokens_per_s == pytest.approx(value.before_tokens_per_s * 1.1)


def test_wider_shared_bandwidth_is_worth_what_its_price_says():
    problem = sharing(TWO_KINDS, egress("wan", "n0", tokens_per_s=30.0))
    value = value_of(problem, PLACED, "+10 % of shared bandwidth wan")
    assert (value.before_tokens_per_s, value.kept_tokens_per_s) == pytest.approx((30.0, 33.0))
    words = " ".join(
        explain_min_cut(problem, PLACED, max_flow(problem, PLACED, partial_inference=True))
    )
    assert (
        "shared bandwidth wan: 0.0 MB/s, each MB/s more is worth at most 10000.0 tokens/s" in words
    )


@pytest.mark.slow
def test_a_search_may_find_more_than_the_kept_layers_allow():
    (value,) = (
        value
        for value in marginal_values(
            TWO_KINDS,
            PLACED,
            options=PlanOptions(objective="flow", solver="highs", time_limit_s=5.0),
            search_s=5.0,
        )
        if value.resource.startswith("+1 p(90")
    )
    assert value.replanned_tokens_per_s >= value.kept_tokens_per_s


def test_an_added_node_has_the_links_and_the_card_of_its_like():
    problem = sharing(
        tiny_problem([[9.0], [8.0]], num_layers=2, link_tokens_per_s={("n0", "n1"): 3.0}),
        egress("card-of-n0", "n0", tokens_per_s=1.0, scope="nic"),
        egress("switch", "n0", "n1", tokens_per_s=9.0),
    )
    larger = dict(with_one_more_node(problem))["+1 p(9.0,) in here"]
    added = larger.cluster.nodes[-1].name
    link = larger.cluster.link_between(added, "n1")
    assert link.bandwidth_bytes_per_s == pytest.approx(300.0)
    members = {share.name: share.members for share in larger.cluster.shared}
    assert members == {
        "card-of-n0": ("n0",),
        "card-of-n0+": (added,),
        "switch": ("n0", "n1", added),
    }


def test_the_minimum_cut_is_told_by_kind_and_layers():
    flow = max_flow(TWO_KINDS, PLACED, partial_inference=True)
    first, second = explain_min_cut(TWO_KINDS, PLACED, flow)
    assert "40.0 tokens/s" in first
    assert second == "compute of 2 x p(40.0, 20.0) in here on layers [2, 4): 40.0 tokens/s (n1, n2)"


def test_links_in_the_minimum_cut_are_told_by_region():
    slow = tiny_problem([[9.0], [9.0]], num_layers=2, link_tokens_per_s={("n0", "n1"): 3.0})
    layers = placement(n0=(0, 1), n1=(1, 2))
    sentences = explain_min_cut(slow, layers, max_flow(slow, layers, partial_inference=True))
    assert sentences[1] == "1 links from here to here: 3.0 tokens/s (n0 -> n1)"


def test_a_placement_without_flow_is_told_to_be_broken():
    layers = placement(n0=(0, 2))
    flow = max_flow(TWO_KINDS, layers, partial_inference=True)
    assert explain_min_cut(TWO_KINDS, layers, flow)[0].startswith("No request can pass")


def test_rules_hold_for_the_added_node_too():
    rules = PlacementRules(max_layers_per_node=1)
    layers = placement(n0=(0, 1), n1=(1, 2))
    two = replace(TWO_KINDS, model=replace(TWO_KINDS.model, num_layers=2))
    value = value_of(two, layers, "+1 p(40.0, 20.0), 1 layers in here", rules=rules)
    assert value.kept_tokens_per_s == pytest.approx(80.0)


EVEN_CHAIN = tiny_problem([[50.0, 30.0]] * 3 + [[80.0, 60.0]], num_layers=8)
EVEN = placement(n0=(0, 2), n1=(2, 4), n2=(4, 6), n3=(6, 8))


def test_an_even_chain_is_told_to_be_limited_by_all_its_ranges_together():
    flow = max_flow(EVEN_CHAIN, EVEN, partial_inference=True)
    told = explain_min_cut(EVEN_CHAIN, EVEN, flow)
    assert "3 ranges of layers are as tight as that, [0, 2), [2, 4), [4, 6)" in told[-1]
    assert "more for one of them alone brings nothing" in told[-1]


def test_where_one_more_node_brings_nothing_the_fewest_that_do_are_named():
    slow, together = "+1 p(50.0, 30.0) in here", "+3 p(50.0, 30.0) in here, together"
    assert value_of(EVEN_CHAIN, EVEN, slow).gain == 0.0
    value = value_of(EVEN_CHAIN, EVEN, together)
    assert value.kept_tokens_per_s == pytest.approx(60.0)
    assert value.gain == pytest.approx(1.0)


def test_tight_ranges_side_by_side_take_one_long_node_each_run():
    problem = tiny_problem([[50.0, 30.0]] * 4 + [[90.0, 70.0, 60.0, 40.0]], num_layers=8)
    chain = placement(n0=(0, 2), n1=(2, 4), n2=(4, 6), n3=(6, 8))
    value = value_of(problem, chain, "+2 p(90.0, 70.0, 60.0, 40.0) in here, together")
    assert value.kept_tokens_per_s == pytest.approx(70.0)


def test_an_added_node_is_linked_with_its_like_where_links_are_named():
    links = {(f"n{i}", f"n{j}"): 1e6 for i in range(3) for j in range(3) if i != j}
    problem = tiny_problem([[9.0]] * 3, num_layers=2, link_tokens_per_s=links)
    cluster = replace(problem.cluster, region_links=())
    ((_, larger),) = with_one_more_node(replace(problem, cluster=cluster))
    assert larger.cluster.link_between("n0", "added-node") is not None
    assert larger.cluster.link_between("added-node", "n0") is not None


def test_several_added_nodes_have_a_card_each():
    problem = sharing(EVEN_CHAIN, egress("card", "n0", tokens_per_s=1e6, scope="nic"))
    value = value_of(problem, EVEN, "+3 p(50.0, 30.0) in here, together")
    assert value.kept_tokens_per_s == pytest.approx(60.0)


TWO_CHAINS = tiny_problem([[100.0], [10.0], [10.0], [100.0]], num_layers=2)
APART = Placement(
    layers=placement(n0=(0, 1), n1=(1, 2), n2=(0, 1), n3=(1, 2)).layers,
    components=(frozenset({"n0", "n1"}), frozenset({"n2", "n3"})),
)


def test_an_added_node_joins_one_component_and_leaves_the_others_apart():
    value = value_of(TWO_CHAINS, APART, "+1 p(10.0,) in here")
    assert (value.before_tokens_per_s, value.kept_tokens_per_s) == pytest.approx((20.0, 30.0))
    assert value.gain == pytest.approx(0.5)


def test_where_one_node_brings_no_component_anything_those_that_serve_one_are_named():
    layers = placement(n0=(0, 1), n1=(1, 2), n2=(2, 3), n3=(0, 1), n4=(1, 2), n5=(2, 3)).layers
    problem = tiny_problem([[20.0], [20.0], [90.0], [20.0], [20.0], [20.0]], num_layers=3)
    chains = Placement(
        layers=layers, components=(frozenset({"n0", "n1", "n2"}), frozenset({"n3", "n4", "n5"}))
    )
    value = value_of(problem, chains, "+2 p(20.0,) in here, together")
    assert value.kept_tokens_per_s == pytest.approx(60.0)
    told = explain_min_cut(problem, chains, max_flow(problem, chains, partial_inference=True))
    assert any("2 ranges of layers of the component of n0 are as tight" in one for one in told)
    assert any("3 ranges of layers of the component of n3 are as tight" in one for one in told)


@settings(max_examples=examples(60))
@given(st.data(), st.booleans())
def test_an_added_node_is_worth_the_best_range_in_the_best_component(data, partial_inference):
    problem, layers = data.draw(placed_problems(max_nodes=4))
    names = sorted(layers.layers)
    first = frozenset(name for name in names if data.draw(st.booleans()))
    halves = (first, frozenset(names) - first)
    parts = tuple(half for half in halves if half) if names else ()
    apart = replace(layers, components=parts)
    values = marginal_values(
        problem, apart, options=PlanOptions(objective="flow", partial_inference=partial_inference)
    )
    kept = {value.resource: value.kept_tokens_per_s for value in values}
    for resource, larger in with_one_more_node(problem):
        name = larger.cluster.nodes[-1].name
        flows = [max_flow(larger, apart, partial_inference=partial_inference).value_tokens_per_s]
        for length in range(1, max_layers(larger, name) + 1):
            for start in range(problem.model.num_layers - length + 1):
                held = LayerRange(first=start, end=start + length)
                for number, part in enumerate(parts or (frozenset(),)):
                    tried = Placement(
                        layers={**layers.layers, name: held},
                        components=(*parts[:number], part | {name}, *parts[number + 1 :]),
                    )
                    flow = max_flow(larger, tried, partial_inference=partial_inference)
                    flows.append(flow.value_tokens_per_s)
        assert kept[resource] == pytest.approx(max(flows), abs=1e-6)


def test_one_more_of_each_is_worth_what_is_served_with_it():
    options = PlanOptions()
    trials = Trials(TWO_KINDS, options)
    before = trials.score(PLACED).merit[0]
    values = {
        value.resource: value for value in marginal_values(TWO_KINDS, PLACED, options=options)
    }
    for resource, larger in with_one_more_node(TWO_KINDS):
        name = larger.cluster.nodes[-1].name
        served = [
            Trials(larger, options).score(PLACED.with_node(name, held)).merit[0]
            for held in set(PLACED.layers.values())
        ]
        assert values[resource].before_tokens_per_s == before
        assert values[resource].kept_tokens_per_s == pytest.approx(max(served))
        assert values[resource].gain > 0


@pytest.mark.parametrize("objective", ["flow", "decode"])
def test_what_survives_is_the_least_that_any_loss_leaves(objective):
    options = PlanOptions(objective=objective)
    score = objective_of(TWO_KINDS, options).score
    left = {name: score(PLACED.without({name})).merit[0] for name in PLACED.layers}
    worst = survival(TWO_KINDS, PLACED, options=options)
    assert worst == Survival(value=min(left.values()), worst_node=min(left, key=left.__getitem__))
