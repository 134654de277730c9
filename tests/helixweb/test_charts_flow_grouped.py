"""The flow of a plan over many nodes: those with the same layers and GPU are drawn as one."""

from collections import defaultdict

import pytest

from helixweb.charts.flow_diagrams import flow_diagram, measured_flow
from helixweb.charts.plan_graph import GROUPED_FROM, PlanGraph
from planner.checked_plan import checked_plan
from planner.domain.placement import LayerRange, Placement
from planner.domain.plan import Plan
from planner.domain.problem import Problem
from planner.generate import PROFILES, generated_cluster


def staged_plan(num_nodes: int) -> tuple[Problem, Plan]:
    """Every node takes the next layers that it can hold, around and around the model."""
    problem = generated_cluster(num_nodes=num_nodes, num_regions=1, seed=1)
    first, layers = 0, {}
    for node in problem.cluster.nodes:
        end = min(first + PROFILES[node.compute_profile].max_layers, problem.model.num_layers)
        layers[node.name] = LayerRange(first=first, end=end)
        first = end % problem.model.num_layers
    plan = checked_plan(
        problem,
        Placement(layers=layers),
        partial_inference=True,
        max_hops=None,
        upper_bound_tokens_per_s=1e9,
        placer="test",
        solver="none",
        stop_reason="test",
        elapsed_s=0.0,
    )
    return problem, plan


@pytest.mark.parametrize("num_nodes", [GROUPED_FROM - 1, GROUPED_FROM, 3 * GROUPED_FROM])
def test_the_whole_flow_leads_to_the_right_through_nodes_or_their_groups(num_nodes: int) -> None:
    problem, plan = staged_plan(num_nodes)
    chart = flow_diagram(problem, plan)
    trace = chart.figure["data"][0]
    carrying = [name for name, flow in plan.flow.nodes.items() if flow.flow_tokens_per_s > 0]
    layers, is_grouped = plan.placement.layers, num_nodes >= GROUPED_FROM
    kinds = {(str(layers[name]), problem.profile_of(name).gpu) for name in carrying}
    drawn = kinds if is_grouped else carrying
    assert len(trace["node"]["label"]) == len(drawn) + 2
    assert ("drawn as one" in chart.summary) == is_grouped
    into: dict[int, float] = defaultdict(float)
    out: dict[int, float] = defaultdict(float)
    links = trace["link"]
    x = trace["node"]["x"]
    for source, target, value in zip(links["source"], links["target"], links["value"], strict=True):
        assert x[source] < x[target]
        out[source] += value
        into[target] += value
    (start,) = set(out) - set(into)
    (end,) = set(into) - set(out)
    assert out[start] == pytest.approx(plan.flow.value_tokens_per_s)
    assert into[end] == pytest.approx(plan.flow.value_tokens_per_s)
    for vertex in set(into) & set(out):
        assert into[vertex] == pytest.approx(out[vertex])


def test_what_limits_is_red_and_named_in_groups_too() -> None:
    problem, plan = staged_plan(2 * GROUPED_FROM)
    assert plan.flow.min_cut.nodes or plan.flow.min_cut.edges
    chart = flow_diagram(problem, plan)
    trace = chart.figure["data"][0]
    red = [
        label
        for label, colour in zip(trace["node"]["label"], trace["node"]["color"], strict=True)
        if colour == "var(--bad)"
    ]
    limiting = [name for name in plan.flow.min_cut.nodes if plan.flow.nodes[name].flow_tokens_per_s]
    assert bool(red) == bool(limiting)
    assert all("min cut" in label for label in red)


def test_what_is_measured_at_nodes_is_added_up_for_their_groups() -> None:
    problem, plan = staged_plan(2 * GROUPED_FROM)
    measured = {(edge.source, edge.target): edge.flow_tokens_per_s for edge in plan.flow.edges}
    chart = measured_flow(PlanGraph(problem, plan), measured)
    assert len(chart.rows) < len([rate for rate in measured.values() if rate])
    assert {row[4] for row in chart.rows} == {"as planned"}
    assert len({row[:2] for row in chart.rows}) == len(chart.rows)
