"""Charts: what each draws, as JSON that Plotly finds nothing wrong with, and names as they are."""

import copy
import inspect
import json
import re
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import plotly.graph_objects as go
import pytest
from django.template.loader import render_to_string

import helixweb.charts
from helixweb.charts.bars import (
    FlowShare,
    NodeShare,
    bottlenecks,
    flow_share,
    link_bars,
    memory_bars,
    node_bars,
    utilisation,
)
from helixweb.charts.chart import Chart, figure_json, plain, shortened, trace
from helixweb.charts.curves import (
    CurveGoal,
    SpeedCurve,
    incumbent_curve,
    moved_bytes,
    speed_curves,
)
from helixweb.charts.flow_diagrams import flow_diagram, load_flow, measured_flow
from helixweb.charts.heat_maps import MatrixCell, latency_heat, network_matrix
from helixweb.charts.layer_map import layer_map
from helixweb.charts.plan_graph import PlanGraph
from helixweb.charts.time_lines import Marker, between, latency, small, time_lines
from helixweb.charts.timelines import PhaseSpan, gantt, phase_timeline
from helixweb.common.plotly_finder import FOLDER, NAME, map_style_id
from helixweb.planning.models import Incumbent
from helixweb.planning.objectives import objective_figure
from planner.domain.plan import Plan
from planner.domain.problem import Problem
from planner.placers.base import NeverCancelled
from planner.plan_options import PlanOptions
from planner.planning import compute_plan
from planner.serialization import problem_from_dict
from planner.simulator.forecast import LinkForecast
from tests.helixweb.conftest import TINY_PROBLEM
from tests.helixweb.request_traces import made_up_trace

AT = datetime(2026, 1, 1, tzinfo=UTC)
TIMES = [AT, AT + timedelta(seconds=1)]


def point(elapsed_s: float, flow: float, bound: float | None) -> Incumbent:
    return Incumbent(
        elapsed_s=elapsed_s,
        flow_tokens_per_s=flow,
        upper_bound_tokens_per_s=bound,
        placer="swarm",
    )


LINK = '<a href="//evil.example">tower</a>'
OURS = {"br", "extra", "/extra"}
# Where Plotly takes what it is given literally: keys of categories, and their order.
KEYS = {"x", "y", "categoryarray", "tickvals"}


def planned(problem: Problem) -> Plan:
    return compute_plan(
        problem,
        options=PlanOptions(objective="flow", time_limit_s=10),
        progress=lambda _: None,
        cancel=NeverCancelled(),
    )


def charts_of(tiny_problem: dict[str, Any], *, name: str) -> dict[str, Chart]:
    """Each chart by its function, of a cluster where a node is called `name`."""
    document = json.loads(json.dumps(copy.deepcopy(tiny_problem)).replace("tower", "NAME"))
    document = json.loads(json.dumps(document).replace("NAME", json.dumps(name)[1:-1]))
    document["compute_profiles"]["big"]["gpu"] = "<b>A%{y}100</extra>"
    problem = problem_from_dict(document)
    plan = planned(problem)
    links = {
        (link.source, link.target): MatrixCell(
            bandwidth_bytes_per_s=link.bandwidth_bytes_per_s, latency_s=link.latency_s, note=name
        )
        for link in problem.cluster.links
    }
    link = LinkForecast(
        source=name, target="mini", utilisation=0.5, bytes_per_s=1e6, queued=0.5, queued_peak=2
    )
    goal = CurveGoal(name="Cost", unit="tokens per price", values=[2.0])
    figure = objective_figure("flow", 2.0)
    answer = {"moved_bytes": 1e9, "figure": figure, "method": "milp", "placement": {}}
    latencies = latency(TIMES, p50_s=[0.1, None], p95_s=[None, 0.2])
    return {
        "flow_diagram": flow_diagram(problem, plan),
        "between": between(latencies, *TIMES, markers=[Marker(at=AT, label="#1")]),
        "flow_share": flow_share([FlowShare(name, 0.5, 0.5)]),
        "gantt": gantt(made_up_trace(1)),
        "incumbent_curve": incumbent_curve([point(1.0, 5.0, None)], until_s=2.0, goal=goal),
        "latency_heat": latency_heat(TIMES, [[1, 2, 0], None], bounds_s=[1, 2]),
        "layer_map": layer_map(problem, plan.placement),
        "link_bars": link_bars([link]),
        "load_flow": load_flow(PlanGraph(problem, plan), None, {}),
        "measured_flow": measured_flow(PlanGraph(problem, plan), None),
        "memory_bars": memory_bars({name: {"left": 1e9}}),
        "moved_bytes": moved_bytes([answer], chosen={}, title="Max flow"),
        "network_matrix": network_matrix([name, "mini"], links),
        "node_bars": node_bars([NodeShare(name, 0.5, "half")], what="KV cache in use"),
        "phase_timeline": phase_timeline(
            [PhaseSpan(node=name, phase="idle", begin_s=0, end_s=1, note="<i>%{x}")]
        ),
        "speed_curves": speed_curves(
            [SpeedCurve(name=name, tokens_per_s=(9.0, 5.0), is_measured=True)]
        ),
        "latency": latencies,
        "small": small(latency(TIMES, p50_s=[0.1, 0.1], p95_s=[0.1, 0.2])),
        "time_lines": time_lines(TIMES, {"running": [3.0, 0.0]}, unit="%"),
        "utilisation": utilisation(problem, plan),
    }


@pytest.fixture(scope="module")
def charts() -> dict[str, Chart]:
    return charts_of(TINY_PROBLEM, name=LINK)


def test_every_chart_is_valid_and_has_a_summary_and_a_table(charts: dict[str, Chart]) -> None:
    for name, chart in charts.items():
        json.dumps(chart.figure, allow_nan=False)
        data, layout = chart.figure["data"], chart.figure["layout"]
        assert not layout["template"], "Plotly's own theme would override ours"
        checked = go.Figure(data=data, layout=layout)
        assert [each.type for each in checked.data] == [each["type"] for each in data]
        assert checked.data, name
        assert chart.summary.endswith(".")
        assert chart.rows
        assert all(len(row) == len(chart.columns) for row in chart.rows)


def test_every_function_that_makes_a_chart_is_checked_here(charts: dict[str, Chart]) -> None:
    folder = Path(helixweb.charts.__file__).parent
    made = {
        name
        for file in folder.glob("*.py")
        for name, made in vars(import_module(f"helixweb.charts.{file.stem}")).items()
        if inspect.isfunction(made) and made.__annotations__.get("return") is Chart
    }
    assert {name for name in made if not name.startswith("_")} == set(charts)


def test_a_number_that_json_does_not_know_is_a_gap() -> None:
    figure = figure_json([trace("bar", x=[1.0, float("inf")], y=["a", float("nan")])], {})
    assert figure["data"] == [{"type": "bar", "x": [1.0, None], "y": ["a", None]}]


def test_members_of_the_min_cut_are_red_in_every_chart() -> None:
    problem = problem_from_dict(TINY_PROBLEM)
    plan = planned(problem)
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


SHARES = (
    FlowShare("tower", 1.0, 0.9),
    FlowShare("laptop", 0.6, 0.2),
    FlowShare("mini", 0.4, None),
)


@pytest.mark.parametrize(
    ("shares", "summary"),
    [
        (SHARES, "Farthest from the plan: laptop, 20.0% measured, 60.0% planned."),
        (SHARES[2:], "No token passed in the last minute."),
        ((), "No token passed in the last minute."),
    ],
)
def test_the_summary_names_the_farthest_node(shares: tuple[FlowShare, ...], summary: str) -> None:
    assert flow_share(shares).summary == summary


def test_answers_of_a_replanning_are_steps_with_the_plans_own_marked() -> None:
    points = [
        {
            "moved_bytes": moved,
            "figure": objective_figure("decode", value),
            "method": "annealed",
            "placement": place,
        }
        for moved, value, place in ((0, 100.0, {"a": [0, 2]}), (2.5e9, 180.0, {"a": [0, 3]}))
    ]
    chart = moved_bytes(points, chosen={"a": [0, 3]}, title="Decode")
    steps, own = chart.figure["data"]
    assert (steps["x"], steps["y"]) == ([0.0, 2.5], [100.0, 180.0])
    assert steps["line"]["shape"] == "hv"
    assert (own["x"], own["y"]) == ([2.5], [180.0])
    assert chart.rows[1] == ("2.5 GB", "180", "annealed")
    assert chart.summary == (
        "From 100 decode tokens/s with 0 B moved to 180 decode tokens/s with 2.5 GB moved."
    )
    one = moved_bytes(points[:1], chosen=None, title="Decode")
    assert one.summary == "One answer: 100 decode tokens/s with 0 B moved."
    assert moved_bytes([], chosen=None, title="").summary == "No answer has been found yet."


def test_the_curve_holds_its_last_values_until_now_and_marks_every_incumbent() -> None:
    chart = incumbent_curve([point(0.5, 10.0, 40.0), point(2.0, 20.0, 30.0)], until_s=5.0)
    flow, bound, marks = chart.figure["data"]
    assert (flow["x"][-1], flow["y"][-1]) == (5.0, 20.0)
    assert (bound["x"][-1], bound["y"][-1]) == (5.0, 30.0)
    assert marks["x"] == [0.5, 2.0]
    assert "no plan can exceed 30" in chart.summary
    goal = CurveGoal(name="Decode", unit="decode tokens/s", values=[8.0], bounds=[12.0])
    chart = incumbent_curve([point(0.5, 10.0, 40.0)], until_s=5.0, goal=goal)
    assert chart.summary.endswith("no plan can exceed 12 decode tokens/s.")
    assert incumbent_curve([], until_s=0.0).summary == "No placement has been found yet."


def test_the_timeline_has_a_bar_for_each_span_where_it_belongs() -> None:
    spans = [
        PhaseSpan(node="a", phase="waiting", begin_s=0.0, end_s=1.0),
        PhaseSpan(node="a", phase="loading", begin_s=1.0, end_s=3.5),
        PhaseSpan(node="b", phase="loading", begin_s=0.5, end_s=2.0, note="slow disk"),
        PhaseSpan(node="a", phase="ready", begin_s=3.5, end_s=4.0),
    ]
    chart = phase_timeline(spans)
    bars = {trace["name"]: trace for trace in chart.figure["data"]}
    assert list(bars) == ["waiting", "loading", "ready"]
    assert bars["loading"]["y"] == ["a", "b"]
    assert bars["loading"]["base"] == [1.0, 0.5]
    assert bars["loading"]["x"] == [2.5, 1.5]
    assert chart.summary == "1 of 2 nodes have been ready so far."
    assert chart.rows[2] == ("b", "loading", 0.5, 1.5, "slow disk")


def test_moments_below_a_small_chart_have_no_second_line() -> None:
    chart = small(latency([AT, AT], p50_s=[0.1, 0.2], p95_s=[0.2, 0.3]))
    assert chart.figure["layout"]["xaxis"]["tickformat"] == "%H:%M"  # else Plotly adds the date


def test_what_was_not_measured_is_a_gap_and_a_dash() -> None:
    chart = latency([AT, AT], p50_s=[0.1, None], p95_s=[None, None])
    assert chart.figure["data"][0]["y"] == [0.1, None]
    assert [row[1] for row in chart.rows] == ["—", "0.1"], "the newest first"
    assert chart.summary == "Nothing is measured now."
    never = latency([AT], p50_s=[None], p95_s=[None])
    assert never.summary == "Nothing has been measured yet."


def test_pages_with_charts_bring_the_style_that_plotly_would_add_without_a_nonce() -> None:
    assert f'getElementById("{map_style_id()}")' in (FOLDER / NAME).read_text()
    page = render_to_string("charts.html", {"request": SimpleNamespace(csp_nonce="once")})
    assert f'<style id="{map_style_id()}" nonce="once">' in page
    assert page.index("<style") < page.index("plotly.min.js")


def texts(value: Any, key: str = "") -> list[str]:
    if isinstance(value, dict):
        return [text for name, item in value.items() for text in texts(item, name)]
    if isinstance(value, list):
        return [text for item in value for text in texts(item, key)]
    return [value] if isinstance(value, str) and key not in KEYS else []


def test_no_name_is_markup_or_a_placeholder_anywhere(charts: dict[str, Chart]) -> None:
    shown = {name: texts(chart.figure) for name, chart in charts.items()}
    naming = {name for name, found in shown.items() if any("&lt;" in text for text in found)}
    assert len(naming) > 10
    by_name = naming - {"speed_curves"}  # whose axes and placeholders are of numbers
    layouts = [charts[name].figure["layout"] for name in by_name]
    axes = [layout["yaxis"] for layout in layouts if "yaxis" in layout]
    assert {axis["type"] for axis in axes} == {"category"}, "what looks like a number stays a name"
    for name in naming:
        for text in shown[name]:
            assert set(re.findall(r"<([^>]*)>", text)) <= OURS, text
            assert name not in by_name or not re.search(r"%{[xy]}", text), text


def test_a_long_name_is_cut_before_it_is_escaped() -> None:
    assert shortened("<" * 30) == "&lt;" * 17 + "…"
    assert plain("R&D %{x}") == "R&amp;D %&#123;x}"
