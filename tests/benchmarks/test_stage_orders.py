"""Plans that differ in the order of their stages only."""

import pytest

from benchmarks.planner.stage_orders import orders_by_kind, placement_of, stages_of
from planner.domain.placement import LayerRange, Placement
from planner.generate import generated_cluster
from planner.max_flow import max_flow


def of_kind(problem, kind):
    return [node.name for node in problem.cluster.nodes if node.compute_profile == kind]


def test_every_order_of_the_kinds_has_all_stages_and_the_same_flow():
    problem = generated_cluster(num_nodes=42, num_regions=1, seed=1)
    big, small = of_kind(problem, "A100"), of_kind(problem, "T4")
    layers = {
        big[number]: LayerRange(first=12 * number, end=12 * number + 12) for number in range(6)
    }
    for number in range(2):
        held = LayerRange(first=72 + 4 * number, end=76 + 4 * number)
        layers |= dict.fromkeys(small[2 * number : 2 * number + 2], held)
    placement = Placement(layers=layers)
    orders = list(orders_by_kind(stages_of(problem, placement)))
    assert [[stage.layers for stage in order] for order in orders] == [
        [12] * 6 + [4] * 2,
        [4] * 2 + [12] * 6,
    ]
    assert placement_of(orders[0]) == placement
    flows = [
        max_flow(problem, placement_of(order), partial_inference=False).value_tokens_per_s
        for order in orders
    ]
    assert flows[0] > 0
    assert flows[1] == pytest.approx(flows[0])


def test_a_plan_whose_ranges_overlap_has_no_order_of_stages():
    problem = generated_cluster(num_nodes=24, num_regions=1, seed=1)
    first, second = (node.name for node in problem.cluster.nodes[:2])
    overlapping = Placement(
        layers={first: LayerRange(first=0, end=4), second: LayerRange(first=2, end=6)}
    )
    with pytest.raises(ValueError, match=r"\[2, 6\), which does not begin .* at 4"):
        stages_of(problem, overlapping)
