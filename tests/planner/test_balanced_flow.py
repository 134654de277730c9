"""The most even maximum flow: as large as any, within every capacity, product form where ample."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from shared_networks import shared_problems
from tiny_problems import placed_problems, placement, tiny_problem

from benchmarks.helix.weights import balanced_weights, with_component_shares
from planner.balanced_flow import balanced_flow
from planner.checked_plan import checked_plan
from planner.domain.cluster import SINK, SOURCE
from planner.domain.errors import InvalidPlacement
from planner.domain.flow import Flow
from planner.domain.placement import LayerRange, Placement
from planner.flow_check import check_flow
from planner.max_flow import max_flow, routing_weights
from tests.examples import examples


def edges_of(flow: Flow) -> dict[tuple[str, str], float]:
    return {(edge.source, edge.target): edge.flow_tokens_per_s for edge in flow.edges}


@given(
    placed=placed_problems(max_nodes=6), partial=st.booleans(), hops=st.sampled_from([None, 2, 3])
)
@settings(max_examples=examples(150))
def test_it_is_a_maximum_flow_within_every_capacity(placed, partial, hops):
    problem, layers = placed
    flow = balanced_flow(problem, layers, partial_inference=partial, max_hops=hops)
    maximum = max_flow(problem, layers, partial_inference=partial, max_hops=hops)
    assert flow.value_tokens_per_s == maximum.value_tokens_per_s
    assert flow.min_cut == maximum.min_cut
    check_flow(flow, problem=problem)


@given(placed=shared_problems(max_nodes=5), partial=st.booleans())
@settings(max_examples=examples(100))
def test_it_keeps_to_shared_bandwidth(placed, partial):
    problem, layers = placed
    check_flow(balanced_flow(problem, layers, partial_inference=partial), problem=problem)


def whole_stages(speeds: list[list[float]]) -> tuple:
    """A stage of one layer for each list, its nodes at those speeds."""
    flat = [(speed, stage) for stage, nodes in enumerate(speeds) for speed in nodes]
    problem = tiny_problem([[speed] for speed, _ in flat], num_layers=len(speeds))
    layers = Placement(
        layers={
            f"n{index}": LayerRange(first=stage, end=stage + 1)
            for index, (_, stage) in enumerate(flat)
        }
    )
    return problem, layers


@given(st.lists(st.lists(st.floats(1.0, 1000.0), min_size=1, max_size=4), min_size=1, max_size=4))
@example([[1.0], [1.0, 501.0, 501.0]])  # alike nodes together far beyond the flow
@settings(max_examples=examples(60))
def test_between_whole_stages_it_is_the_product_of_even_shares(speeds):
    problem, layers = whole_stages(speeds)
    flow = balanced_flow(problem, layers, partial_inference=False)
    value = flow.value_tokens_per_s
    stages = [sum(nodes) for nodes in speeds]
    assert value == pytest.approx(min(stages))
    share = {SOURCE: 1.0, SINK: 1.0}
    names = iter(layers.layers)
    for nodes, total in zip(speeds, stages, strict=True):
        share |= {next(names): speed / total for speed in nodes}
    for (source, target), carried in edges_of(flow).items():
        assert carried == pytest.approx(value * share[source] * share[target], rel=1e-6)


@given(placed=placed_problems(max_nodes=6), data=st.data())
@settings(max_examples=examples(60))
def test_no_other_maximum_flow_spreads_the_nodes_more_evenly(placed, data):
    """Towards any other maximum flow the sum of flow^2 / capacity does not fall (first order)."""
    problem, layers = placed
    flow = balanced_flow(problem, layers, partial_inference=True)
    other = max_flow(problem, layers, partial_inference=True)
    slope = sum(
        node.flow_tokens_per_s
        * (other.nodes[name].flow_tokens_per_s - node.flow_tokens_per_s)
        / node.capacity_tokens_per_s
        for name, node in flow.nodes.items()
        if node.capacity_tokens_per_s > 0
    )
    assert slope >= -0.1 * flow.value_tokens_per_s


TWO_PIPELINES = Placement(
    layers={
        "n0": LayerRange(first=0, end=1),
        "n1": LayerRange(first=1, end=2),
        "n2": LayerRange(first=0, end=1),
        "n3": LayerRange(first=1, end=2),
    },
    components=(frozenset({"n0", "n1"}), frozenset({"n2", "n3"})),
)
TWO_PIPELINES_PROBLEM = tiny_problem([[9.0], [5.0], [2.0], [8.0]], num_layers=2)


def test_components_share_the_source_by_their_own_flow():
    weights = balanced_weights(TWO_PIPELINES_PROBLEM, TWO_PIPELINES, partial_inference=True)
    assert weights[SOURCE] == pytest.approx({"n0": 5.0, "n2": 2.0})
    assert set(weights["n0"]) == {"n1"}
    assert set(weights["n2"]) == {"n3"}


def test_given_shares_replace_the_components_own():
    own = balanced_weights(TWO_PIPELINES_PROBLEM, TWO_PIPELINES, partial_inference=True)
    weights = with_component_shares(own, TWO_PIPELINES, [1.0, 3.0])
    assert weights[SOURCE] == pytest.approx({"n0": 1.75, "n2": 5.25})
    assert weights["n0"] == pytest.approx({"n1": 5.0})


@pytest.mark.parametrize("shares", [[1.0], [1.0, -1.0], [0.0, 0.0]])
def test_shares_that_fit_no_component_are_refused(shares):
    with pytest.raises(InvalidPlacement, match="give 2 numbers of 0 or more"):
        with_component_shares({SOURCE: {"n0": 1.0}}, TWO_PIPELINES, shares)


def test_a_narrow_link_takes_what_it_can_and_the_rest_stays_even():
    """2 x 2 nodes at 4 tokens/s: products of 2 on each link, but one carries only 1."""
    problem = tiny_problem([[4.0]] * 4, num_layers=2, link_tokens_per_s={("n0", "n2"): 1.0})
    layers = placement(n0=(0, 1), n1=(0, 1), n2=(1, 2), n3=(1, 2))
    carried = edges_of(balanced_flow(problem, layers, partial_inference=True))
    assert carried["n0", "n2"] == pytest.approx(1.0)
    assert carried["n0", "n3"] == pytest.approx(3.0)
    assert carried["n1", "n2"] == pytest.approx(3.0)
    assert carried["n1", "n3"] == pytest.approx(1.0)


def test_a_placement_without_flow_has_no_weights():
    problem = tiny_problem([[4.0]] * 2, num_layers=2)
    flow = balanced_flow(problem, placement(n0=(0, 1)), partial_inference=True)
    assert routing_weights(flow) == {}


def test_a_plan_has_balanced_weights_of_a_maximum_flow():
    problem, layers = whole_stages([[4.0, 4.0], [4.0, 4.0]])
    plan = checked_plan(
        problem,
        layers,
        partial_inference=True,
        max_hops=None,
        upper_bound_tokens_per_s=8.0,
        placer="test",
        solver="none",
        stop_reason="test",
        elapsed_s=0.0,
    )
    plain = max_flow(problem, layers, partial_inference=True)
    assert plan.flow.value_tokens_per_s == pytest.approx(plain.value_tokens_per_s)
    assert plan.routing_weights["n0"] == pytest.approx({"n2": 2.0, "n3": 2.0})
    assert plan.routing_weights["n0"]["n2"] == edges_of(plan.flow)["n0", "n2"]
    assert len(routing_weights(plain)["n0"]) == 1


@settings(max_examples=examples(100))
@given(placed=placed_problems(max_nodes=4), partial=st.booleans(), max_hops=st.integers(1, 4))
def test_no_weight_is_dust_and_no_weight_leads_nowhere(placed, partial, max_hops):
    problem, layers = placed
    flow = balanced_flow(problem, layers, partial_inference=partial, max_hops=max_hops)
    weights = routing_weights(flow)
    total = sum(weights.get("source", {}).values())
    used = {target for targets in weights.values() for target in targets}
    assert weights.keys() - {"source"} == used - {"sink"}
    assert all(
        weight > 1e-10 * total for targets in weights.values() for weight in targets.values()
    )


def test_a_hop_beyond_the_limit_gets_no_weight():
    problem = tiny_problem([[10.0, 10.0], [100.0], [100.0]], num_layers=2)
    placed = placement(n0=(0, 2), n1=(0, 1), n2=(1, 2))
    flow = balanced_flow(problem, placed, partial_inference=False, max_hops=1)
    assert routing_weights(flow).keys() == {"source", "n0"}
