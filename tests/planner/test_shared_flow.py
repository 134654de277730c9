from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_networks import egress, max_flow_over_pipelines, shared_problems, sharing
from tiny_problems import TOKEN_BYTES, placement, tiny_problem

from planner.bounds.best import upper_bound_tokens_per_s
from planner.domain.cluster import COORDINATOR, SharedBandwidth
from planner.domain.errors import InvalidProblem
from planner.domain.flow import Price
from planner.flow_check import FlowCheckFailed, check_flow, flow_value_by_second_method
from planner.flow_graph import build_flow_graph
from planner.max_flow import flow_through_nodes, max_flow
from tests.examples import examples

FOUR = tiny_problem([[10.0], [10.0], [10.0], [10.0]], num_layers=2)
TWO_BY_TWO = placement(n0=(0, 1), n1=(0, 1), n2=(1, 2), n3=(1, 2))


@settings(max_examples=examples(300))
@given(shared_problems(), st.booleans())
def test_a_flow_over_shared_bandwidth_is_what_all_pipelines_together_can_carry(placed, partial):
    problem, layers = placed
    flow = max_flow(problem, layers, partial_inference=partial)
    check_flow(flow, problem=problem)
    expected = max_flow_over_pipelines(problem, layers, partial_inference=partial)
    assert flow.value_tokens_per_s == pytest.approx(expected, rel=1e-6, abs=1e-5)
    second = flow_value_by_second_method(problem, layers, partial_inference=partial)
    assert second == pytest.approx(expected, rel=1e-6, abs=1e-5)
    assert flow.value_tokens_per_s <= upper_bound_tokens_per_s(problem) * (1 + 1e-9)


@settings(max_examples=examples(60))
@given(shared_problems(), st.booleans())
def test_what_passes_the_nodes_alone_is_what_the_whole_flow_says(placed, partial):
    problem, layers = placed
    whole = max_flow(problem, layers, partial_inference=partial)
    graph = build_flow_graph(problem, layers, partial_inference=partial)
    nodes = flow_through_nodes(problem, graph)
    assert nodes.value_tokens_per_s == whole.value_tokens_per_s
    assert nodes.nodes == whole.nodes
    assert nodes.in_cut == set(whole.min_cut.nodes)


def test_members_share_their_way_out_however_many_links_they_have():
    problem = sharing(FOUR, egress("wan", "n0", "n1", tokens_per_s=13.0))
    flow = max_flow(problem, TWO_BY_TWO, partial_inference=True)
    assert flow.value_tokens_per_s == pytest.approx(13.0)
    assert flow.min_cut.shared == ("wan",)
    (shared,) = flow.shared
    assert shared.used_bytes_per_s == pytest.approx(shared.bandwidth_bytes_per_s)


def test_the_price_of_shared_bandwidth_is_what_one_more_byte_per_s_brings():
    problem = sharing(FOUR, egress("wan", "n0", "n1", tokens_per_s=13.0))
    wider = sharing(FOUR, egress("wan", "n0", "n1", tokens_per_s=14.0))
    (price,) = max_flow(problem, TWO_BY_TWO, partial_inference=True).min_cut.prices
    assert price == Price(kind="shared", name=("wan",), price=pytest.approx(1 / 100))
    gained = max_flow(wider, TWO_BY_TWO, partial_inference=True).value_tokens_per_s - 13.0
    assert gained == pytest.approx(price.price * 100)


def test_what_stays_among_a_region_s_members_is_free_but_not_for_a_network_card():
    inside = ("n0", "n1", "n2", "n3", COORDINATOR)
    free = sharing(FOUR, egress("wan", *inside, tokens_per_s=1.0))
    flow = max_flow(free, TWO_BY_TWO, partial_inference=True)
    assert flow.value_tokens_per_s == pytest.approx(20.0)
    card = sharing(FOUR, egress("card", *inside, tokens_per_s=1.04, scope="nic"))
    flow = max_flow(card, TWO_BY_TWO, partial_inference=True)
    # Each token leaves the coordinator (2 bytes), crosses once (100 bytes) and returns (2 bytes).
    assert flow.value_tokens_per_s == pytest.approx(1.0)


def test_the_coordinator_s_way_out_carries_tokens_not_activations():
    out = SharedBandwidth(
        name="front",
        members=(COORDINATOR,),
        direction="egress",
        bandwidth_bytes_per_s=7.0 * TOKEN_BYTES,
        scope="nic",
    )
    flow = max_flow(sharing(FOUR, out), TWO_BY_TWO, partial_inference=True)
    assert flow.value_tokens_per_s == pytest.approx(7.0)


def test_a_region_s_name_stands_for_its_nodes_and_the_coordinator():
    problem = sharing(FOUR, egress("wan", "here", tokens_per_s=1.0))
    members = problem.cluster.members_of(problem.cluster.shared[0])
    assert members == {"n0", "n1", "n2", "n3", COORDINATOR}


def test_ample_shared_bandwidth_leaves_flow_and_cut_as_they_were():
    plain = max_flow(FOUR, TWO_BY_TWO, partial_inference=True)
    problem = sharing(FOUR, egress("wan", "n0", tokens_per_s=1000.0))
    flow = max_flow(problem, TWO_BY_TWO, partial_inference=True)
    assert replace(flow, shared=()) == plain


def test_a_flow_above_a_shared_bandwidth_is_found():
    plain = max_flow(FOUR, TWO_BY_TWO, partial_inference=True)
    problem = sharing(FOUR, egress("wan", "n0", "n1", tokens_per_s=13.0))
    with pytest.raises(FlowCheckFailed, match="egress of wan carries 2000"):
        check_flow(plain, problem=problem)


def test_prices_that_let_a_path_pass_prove_nothing():
    problem = sharing(FOUR, egress("wan", "n0", "n1", tokens_per_s=13.0))
    flow = max_flow(problem, TWO_BY_TWO, partial_inference=True)
    cheap = replace(flow.min_cut, prices=(Price(kind="node", name=("n0",), price=1.3),), shared=())
    with pytest.raises(FlowCheckFailed, match="a path from source to sink pays 0"):
        check_flow(replace(flow, min_cut=cheap), problem=problem)


def test_a_flow_with_shared_bandwidth_is_not_checked_without_its_problem():
    problem = sharing(FOUR, egress("wan", "n0", "n1", tokens_per_s=13.0))
    flow = max_flow(problem, TWO_BY_TWO, partial_inference=True)
    with pytest.raises(FlowCheckFailed, match="give its problem"):
        check_flow(flow)


def test_a_cluster_without_a_node_keeps_what_the_others_share():
    problem = sharing(
        FOUR, egress("both", "n0", "n1", tokens_per_s=1.0), egress("own", "n0", tokens_per_s=1.0)
    )
    left = problem.cluster.without({"n0"})
    assert [(shared.name, shared.members) for shared in left.shared] == [("both", ("n1",))]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"members": ("n9",)}, "'n9' is neither a node nor a region"),
        ({"members": ()}, "has no members"),
        ({"direction": "up"}, "direction is 'up'"),
        ({"scope": "rack"}, "scope is 'rack'"),
        ({"bandwidth_bytes_per_s": 0.0}, "bandwidth_bytes_per_s is 0; it must be greater"),
        ({"name": ""}, "name is ''; give it a name"),
    ],
)
def test_shared_bandwidth_that_makes_no_sense_is_refused(change, words):
    with pytest.raises(InvalidProblem, match=words):
        sharing(FOUR, replace(egress("wan", "n0", tokens_per_s=1.0), **change))


def test_shared_bandwidth_is_listed_once():
    once = egress("wan", "n0", tokens_per_s=1.0)
    with pytest.raises(InvalidProblem, match="listed twice"):
        sharing(FOUR, once, once)
