"""Plotly itself finds nothing wrong with any figure; the site makes them without its classes."""

import inspect
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

import helixweb.charts
from helixweb.charts.chart import Chart, figure_json, trace
from helixweb.charts.flow_diagram import flow_diagram
from helixweb.charts.gantt import gantt
from helixweb.charts.incumbent_curve import CurveGoal, incumbent_curve
from helixweb.charts.latency_heat import latency_heat
from helixweb.charts.layer_map import layer_map
from helixweb.charts.live_flow import load_flow, measured_flow
from helixweb.charts.memory_bars import memory_bars
from helixweb.charts.moved_bytes import moved_bytes
from helixweb.charts.network_matrix import MatrixCell, network_matrix
from helixweb.charts.phase_timeline import PhaseSpan, phase_timeline
from helixweb.charts.plan_graph import PlanGraph
from helixweb.charts.share_bars import FlowShare, NodeShare, flow_share, link_bars, node_bars
from helixweb.charts.speed_curves import SpeedCurve, speed_curves
from helixweb.charts.time_lines import Marker, between, latency, small, time_lines
from helixweb.charts.utilisation import utilisation
from helixweb.common.templatetags.bulk import table_rows
from helixweb.planning.models import Incumbent
from planner.domain.plan import Plan
from planner.domain.problem import Problem
from planner.placers.base import NeverCancelled
from planner.plan_options import PlanOptions
from planner.planning import compute_plan
from planner.serialization import problem_from_dict
from planner.simulator.forecast import LinkForecast
from tests.helixweb.request_traces import made_up_trace

AT = datetime(2026, 1, 1, tzinfo=UTC)
TIMES = [AT, AT + timedelta(seconds=1)]
POINTS = [
    Incumbent(elapsed_s=1.0, flow_tokens_per_s=5.0, upper_bound_tokens_per_s=None, placer="milp")
]
CELLS = {("a", "b"): MatrixCell(bandwidth_bytes_per_s=1e9, latency_s=0.01, in_use=True)}
CHARTS: dict[str, Callable[[Problem, Plan], Chart]] = {
    "flow_diagram": flow_diagram,
    "between": lambda _problem, _plan: between(
        latency(TIMES, p50_s=[0.1, None], p95_s=[None, 0.2]),
        *TIMES,
        markers=[Marker(at=AT, label="#1")],
    ),
    "flow_share": lambda _problem, _plan: flow_share([FlowShare("tower", 1.0, None)]),
    "gantt": lambda _problem, _plan: gantt(made_up_trace(1)),
    "incumbent_curve": lambda _problem, _plan: incumbent_curve(
        POINTS, until_s=2.0, goal=CurveGoal(name="Cost", unit="tokens per price", values=[2.0])
    ),
    "latency_heat": lambda _problem, _plan: latency_heat(TIMES, [[1, 2, 0], None], bounds_s=[1, 2]),
    "layer_map": lambda problem, plan: layer_map(problem, plan.placement),
    "link_bars": lambda _problem, _plan: link_bars(
        [
            LinkForecast(
                source="a",
                target="b",
                utilisation=0.5,
                bytes_per_s=1e6,
                queued=0.5,
                queued_peak=2,
            )
        ]
    ),
    "load_flow": lambda problem, plan: load_flow(PlanGraph(problem, plan), None, {}),
    "measured_flow": lambda problem, plan: measured_flow(PlanGraph(problem, plan), None),
    "memory_bars": lambda _problem, _plan: memory_bars({"a": {"left": 1e9}}),
    "moved_bytes": lambda _problem, _plan: moved_bytes(
        [{"moved_bytes": 1e9, "flow_tokens_per_s": 2.0, "method": "milp", "placement": {}}],
        chosen={},
    ),
    "network_matrix": lambda _problem, _plan: network_matrix(["a", "b"], CELLS),
    "node_bars": lambda _problem, _plan: node_bars(
        [NodeShare("tower", 0.5, "half")], what="KV cache in use"
    ),
    "phase_timeline": lambda _problem, _plan: phase_timeline(
        [PhaseSpan(node="tower", phase="ready", begin_s=0.0, end_s=1.0)]
    ),
    "speed_curves": lambda _problem, _plan: speed_curves(
        [SpeedCurve(name="A100", tokens_per_s=(9.0, 5.0), is_measured=True)]
    ),
    "latency": lambda _problem, _plan: latency(TIMES, p50_s=[0.1, None], p95_s=[None, 0.2]),
    "small": lambda _problem, _plan: small(latency(TIMES, p50_s=[0.1, 0.1], p95_s=[0.1, 0.2])),
    "time_lines": lambda _problem, _plan: time_lines(TIMES, {"running": [3.0, 0.0]}, unit="%"),
    "utilisation": utilisation,
}


@pytest.fixture
def problem(tiny_problem: dict[str, Any]) -> Problem:
    return problem_from_dict(tiny_problem)


@pytest.fixture
def plan(problem: Problem) -> Plan:
    return compute_plan(
        problem,
        options=PlanOptions(objective="flow", time_limit_s=1),
        progress=lambda _: None,
        cancel=NeverCancelled(),
    )


def test_every_chart_is_plain_json_that_plotly_knows_with_a_sentence_and_a_table(
    problem: Problem, plan: Plan
) -> None:
    for name, make in CHARTS.items():
        chart = make(problem, plan)
        json.dumps(chart.figure, allow_nan=False)
        data, layout = chart.figure["data"], chart.figure["layout"]
        assert not layout["template"], "Plotly's own theme would override ours"
        checked = go.Figure(data=data, layout=layout)
        assert [each.type for each in checked.data] == [each["type"] for each in data]
        assert checked.data, name
        assert chart.summary.endswith(".")
        assert chart.rows
        assert all(len(row) == len(chart.columns) for row in chart.rows)


def test_every_function_that_makes_a_chart_is_checked_here() -> None:
    folder = Path(helixweb.charts.__file__).parent
    made = {
        name
        for file in folder.glob("*.py")
        for name, made in vars(import_module(f"helixweb.charts.{file.stem}")).items()
        if inspect.isfunction(made) and made.__annotations__.get("return") is Chart
    }
    assert {name for name in made if not name.startswith("_")} == set(CHARTS)


def test_a_number_that_json_does_not_know_is_a_gap() -> None:
    figure = figure_json([trace("bar", x=[1.0, float("inf")], y=["a", float("nan")])], {})
    assert figure["data"] == [{"type": "bar", "x": [1.0, None], "y": ["a", None]}]


def test_a_chart_cannot_break_out_of_its_table() -> None:
    evil = "</script><td>&"
    assert table_rows([(evil, 1.5)]) == (
        "<tr><td>&lt;/script&gt;&lt;td&gt;&amp;</td><td>1.5</td></tr>"
    )
