"""Names are shown as they are: Plotly reads markup, numbers and dates in what it is given."""

import copy
import json
import re
from typing import Any

import pytest

from helixweb.charts.chart import Chart, plain, shortened
from helixweb.charts.flow_diagram import flow_diagram
from helixweb.charts.layer_map import layer_map
from helixweb.charts.network_matrix import MatrixCell, network_matrix
from helixweb.charts.phase_timeline import PhaseSpan, phase_timeline
from helixweb.charts.share_bars import FlowShare, NodeShare, flow_share, node_bars
from helixweb.charts.utilisation import utilisation
from planner.placers.base import NeverCancelled
from planner.plan_options import PlanOptions
from planner.planning import compute_plan
from planner.serialization import problem_from_dict

LINK = '<a href="//evil.example">tower</a>'
OURS = {"br", "extra", "/extra"}
# Where Plotly takes what it is given literally: keys of categories, and their order.
KEYS = {"x", "y", "categoryarray", "tickvals"}


@pytest.fixture
def charts(tiny_problem: dict[str, Any]) -> list[Chart]:
    return charts_of(tiny_problem, name=LINK)


def charts_of(tiny_problem: dict[str, Any], *, name: str) -> list[Chart]:
    """Every chart that shows names of nodes or GPUs, of a cluster where one is called `name`."""
    document = json.loads(json.dumps(copy.deepcopy(tiny_problem)).replace("tower", "NAME"))
    document = json.loads(json.dumps(document).replace("NAME", json.dumps(name)[1:-1]))
    document["compute_profiles"]["big"]["gpu"] = "<b>A%{y}100</extra>"
    problem = problem_from_dict(document)
    plan = compute_plan(
        problem,
        options=PlanOptions(objective="flow", time_limit_s=10),
        progress=lambda incumbent: None,
        cancel=NeverCancelled(),
    )
    links = {
        (link.source, link.target): MatrixCell(
            bandwidth_bytes_per_s=link.bandwidth_bytes_per_s, latency_s=link.latency_s, note=name
        )
        for link in problem.cluster.links
    }
    return [
        flow_diagram(problem, plan),
        layer_map(problem, plan.placement),
        utilisation(problem, plan),
        network_matrix([name, "mini"], links),
        node_bars([NodeShare(name, 0.5, "half")], what="KV cache in use"),
        flow_share([FlowShare(name, 0.5, 0.5)]),
        phase_timeline([PhaseSpan(node=name, phase="idle", begin_s=0, end_s=1, note="<i>%{x}")]),
    ]


def texts(value: Any, key: str = "") -> list[str]:
    if isinstance(value, dict):
        return [text for name, item in value.items() for text in texts(item, name)]
    if isinstance(value, list):
        return [text for item in value for text in texts(item, key)]
    return [value] if isinstance(value, str) and key not in KEYS else []


def test_no_name_is_markup_or_a_placeholder_anywhere(charts: list[Chart]) -> None:
    for chart in charts:
        shown = texts(chart.figure)
        assert any("&lt;" in text for text in shown)
        for text in shown:
            assert set(re.findall(r"<([^>]*)>", text)) <= OURS, text
            assert "%{y}" not in text
            assert "%{x}" not in text


def test_names_that_look_like_numbers_stay_names(charts: list[Chart]) -> None:
    axes = [
        chart.figure["layout"]["yaxis"] for chart in charts if "yaxis" in chart.figure["layout"]
    ]
    assert len(axes) == len(charts) - 1, "all but the flow diagram"
    assert {axis["type"] for axis in axes} == {"category"}


def test_a_long_name_is_cut_before_it_is_escaped() -> None:
    assert shortened("<" * 30) == "&lt;" * 17 + "…"
    assert plain("R&D %{x}") == "R&amp;D %&#123;x}"
