"""What the charts say is what the plan says, for those who see them and those who do not."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from django.template.loader import render_to_string

from helixweb.charts.flow_diagram import flow_diagram
from helixweb.charts.incumbent_curve import incumbent_curve
from helixweb.charts.latency_heat import latency_heat
from helixweb.charts.layer_map import layer_map
from helixweb.charts.moved_bytes import moved_bytes
from helixweb.charts.quantities import duration_text
from helixweb.charts.share_bars import FlowShare, flow_share
from helixweb.charts.time_lines import latency
from helixweb.charts.utilisation import bottlenecks, utilisation
from helixweb.common.plotly_finder import FOLDER, NAME, map_style_id
from helixweb.planning.models import Incumbent
from planner.domain.plan import Plan
from planner.domain.problem import Problem
from planner.placers.base import NeverCancelled
from planner.plan_options import PlanOptions
from planner.planning import compute_plan
from planner.serialization import problem_from_dict


@pytest.fixture
def problem(tiny_problem: dict[str, Any]) -> Problem:
    return problem_from_dict(tiny_problem)


@pytest.fixture
def plan(problem: Problem) -> Plan:
    return compute_plan(
        problem,
        options=PlanOptions(objective="flow", time_limit_s=10),
        progress=lambda incumbent: None,
        cancel=NeverCancelled(),
    )


def test_the_flow_diagram_carries_the_whole_flow_from_coordinator_to_coordinator(
    problem: Problem, plan: Plan
) -> None:
    (sankey,) = flow_diagram(problem, plan).figure["data"]
    labels, link = sankey["node"]["label"], sankey["link"]
    first, last = labels.index("coordinator"), len(labels) - 1 - labels[::-1].index("coordinator")
    out = sum(v for s, v in zip(link["source"], link["value"], strict=True) if s == first)
    into = sum(v for t, v in zip(link["target"], link["value"], strict=True) if t == last)
    assert out == pytest.approx(plan.flow.value_tokens_per_s)
    assert into == pytest.approx(plan.flow.value_tokens_per_s)


def test_every_link_of_the_flow_diagram_leads_to_the_right(problem: Problem, plan: Plan) -> None:
    (sankey,) = flow_diagram(problem, plan).figure["data"]
    x, link = sankey["node"]["x"], sankey["link"]
    assert all(
        x[source] < x[target] for source, target in zip(link["source"], link["target"], strict=True)
    )


def test_members_of_the_min_cut_are_red_and_named_in_every_chart(
    problem: Problem, plan: Plan
) -> None:
    assert plan.flow.min_cut.nodes, "the tiny problem is limited by compute"
    (sankey,) = flow_diagram(problem, plan).figure["data"]
    (bars,) = utilisation(problem, plan).figure["data"]
    sentences = bottlenecks(problem, plan)
    assert len(sentences) == len(plan.flow.min_cut.nodes) + len(plan.flow.min_cut.edges)
    for name in plan.flow.min_cut.nodes:
        index = next(i for i, text in enumerate(sankey["node"]["label"]) if text.startswith(name))
        assert "min cut" in sankey["node"]["label"][index]
        assert sankey["node"]["color"][index] == "var(--bad)"
        row = bars["y"].index(name)
        assert "min cut" in bars["text"][row]
        assert bars["marker"]["color"][row] == "var(--bad)"
        assert any(text.startswith(f"{name} (") for text in sentences)


def test_the_layer_map_draws_each_node_from_its_first_to_its_end_layer(
    problem: Problem, plan: Plan
) -> None:
    drawn = {
        name: (base, base + length)
        for trace in layer_map(problem, plan.placement).figure["data"]
        for name, base, length in zip(trace["y"], trace["base"], trace["x"], strict=True)
    }
    assert drawn == {name: (held.first, held.end) for name, held in plan.placement.layers.items()}


def test_utilisation_puts_the_busiest_node_first(problem: Problem, plan: Plan) -> None:
    (bars,) = utilisation(problem, plan).figure["data"]
    assert bars["x"] == sorted(bars["x"], reverse=True)


SHARES = (
    FlowShare("tower", 1.0, 0.9),
    FlowShare("laptop", 0.6, 0.2),
    FlowShare("mini", 0.4, None),
)


def test_measured_and_planned_shares_of_every_node_are_drawn_in_the_order_given() -> None:
    chart = flow_share(SHARES)
    measured, planned = chart.figure["data"]
    assert measured["y"] == planned["y"] == ["tower", "laptop", "mini"]
    assert measured["x"] == [0.9, 0.2, None]
    assert planned["x"] == [1.0, 0.6, 0.4]
    assert chart.figure["layout"]["yaxis"]["categoryarray"] == ["mini", "laptop", "tower"]
    assert chart.rows[2] == ("mini", "—", "40.0%")


@pytest.mark.parametrize(
    ("shares", "summary"),
    [
        (SHARES, "Farthest from the plan: laptop, 20.0% measured, 60.0% planned."),
        (SHARES[2:], "No token passed in the last minute."),
        ((), "No token passed in the last minute."),
    ],
)
def test_the_summary_names_the_node_farthest_from_its_plan(
    shares: tuple[FlowShare, ...], summary: str
) -> None:
    assert flow_share(shares).summary == summary


def test_answers_of_a_replanning_are_steps_with_the_plans_own_marked() -> None:
    points = [
        {"moved_bytes": moved, "flow_tokens_per_s": flow, "method": "annealed", "placement": place}
        for moved, flow, place in ((0, 100.0, {"a": [0, 2]}), (2.5e9, 180.0, {"a": [0, 3]}))
    ]
    chart = moved_bytes(points, chosen={"a": [0, 3]})
    steps, own = chart.figure["data"]
    assert (steps["x"], steps["y"]) == ([0.0, 2.5], [100.0, 180.0])
    assert steps["line"]["shape"] == "hv"
    assert (own["x"], own["y"]) == ([2.5], [180.0])
    assert chart.rows[1] == ("2.5 GB", "180", "annealed")
    assert chart.summary == "From 100 tokens/s with 0 B moved to 180 tokens/s with 2.5 GB moved."
    one = moved_bytes(points[:1], chosen=None)
    assert one.summary == "One answer: 100 tokens/s with 0 B moved."
    assert moved_bytes([], chosen=None).summary == "No answer has been found yet."


def test_the_curve_holds_its_last_values_until_now_and_marks_every_incumbent() -> None:
    chart = incumbent_curve([_point(0.5, 10.0, 40.0), _point(2.0, 20.0, 30.0)], until_s=5.0)
    flow, bound, marks = chart.figure["data"]
    assert (flow["x"][-1], flow["y"][-1]) == (5.0, 20.0)
    assert (bound["x"][-1], bound["y"][-1]) == (5.0, 30.0)
    assert marks["x"] == [0.5, 2.0]
    assert "no plan can exceed 30" in chart.summary


def test_a_curve_without_incumbents_says_so() -> None:
    chart = incumbent_curve([], until_s=0.0)
    assert chart.rows == ()
    assert chart.summary == "No placement has been found yet."


def test_what_was_not_measured_is_a_gap_and_a_dash() -> None:
    chart = latency([_moment(), _moment()], p50_s=[0.1, None], p95_s=[None, None])
    assert chart.figure["data"][0]["y"] == [0.1, None]
    assert [row[1] for row in chart.rows] == ["—", "0.1"], "the newest first"
    assert chart.summary == "Nothing is measured now."
    never = latency([_moment()], p50_s=[None], p95_s=[None])
    assert never.summary == "Nothing has been measured yet."


def test_a_latency_in_a_summary_has_the_text_of_its_tile() -> None:
    chart = latency([_moment()], p50_s=[0.0866], p95_s=[None])
    assert f"p50 {duration_text(0.0866)}." in chart.summary


def test_times_stand_level_so_that_a_phone_cuts_none_of_them_off() -> None:
    line = latency([_moment()], p50_s=[0.1], p95_s=[0.2])
    heat = latency_heat([_moment()], [(1, 0)], bounds_s=[1.0])
    for chart in (line, heat):
        assert chart.figure["layout"]["xaxis"]["tickangle"] == 0


def _moment() -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC)


def _point(elapsed_s: float, flow: float, bound: float | None) -> Incumbent:
    return Incumbent(
        elapsed_s=elapsed_s,
        flow_tokens_per_s=flow,
        upper_bound_tokens_per_s=bound,
        placer="swarm",
    )


def test_pages_with_charts_bring_the_style_that_plotly_would_add_without_a_nonce() -> None:
    assert f'getElementById("{map_style_id()}")' in (FOLDER / NAME).read_text()
    page = render_to_string("charts.html", {"request": SimpleNamespace(csp_nonce="once")})
    assert f'<style id="{map_style_id()}" nonce="once">' in page
    assert page.index("<style") < page.index("plotly.min.js")


def test_a_part_that_is_fetched_brings_no_style_of_a_nonce_that_its_page_does_not_know() -> None:
    request = SimpleNamespace(csp_nonce="another", htmx=True)
    assert "<style" not in render_to_string("charts.html", {"request": request})
