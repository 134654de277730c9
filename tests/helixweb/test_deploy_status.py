"""The status of a deployment as a function of what its nodes report, and the timeline's figure."""

import pytest

from helixweb.charts.timelines import PhaseSpan, phase_timeline
from helixweb.deployment.models import Status
from helixweb.deployment.settling import (
    NodeReport,
    verdict_in_service,
    verdict_while_stopping,
)
from runtime.protocol.phases import Phase


def report(
    phase: Phase | None, *, removed: bool = False, lost: bool = False, message: str = ""
) -> NodeReport:
    return NodeReport(name="a", phase=phase, message=message, removed=removed, lost=lost)


@pytest.mark.parametrize(
    ("reports", "status"),
    [
        ([report(Phase.READY), report(Phase.READY)], Status.READY),
        ([report(Phase.READY), report(Phase.LOADING)], Status.DEPLOYING),
        ([report(Phase.READY), report(None)], Status.DEPLOYING),
        ([report(Phase.READY), report(Phase.IDLE)], Status.DEPLOYING),
        ([report(Phase.READY), report(Phase.FAILED)], Status.FAILED),
        ([report(Phase.READY), report(Phase.READY, removed=True)], Status.FAILED),
        ([report(Phase.READY), report(Phase.READY, lost=True)], Status.DEGRADED),
        ([report(Phase.LOADING), report(Phase.READY, lost=True)], Status.DEPLOYING),
    ],
)
def test_a_deployment_is_what_its_worst_node_is(reports: list[NodeReport], status: Status) -> None:
    assert verdict_in_service(reports).status is status


@pytest.mark.parametrize(
    ("reports", "status"),
    [
        ([report(Phase.IDLE), report(Phase.IDLE)], Status.STOPPED),
        ([report(Phase.IDLE), report(Phase.STOPPING)], Status.STOPPING),
        ([report(Phase.IDLE), report(None)], Status.STOPPING),
        ([report(Phase.IDLE), report(None, lost=True)], Status.STOPPED),
        ([report(Phase.IDLE), report(None, removed=True)], Status.STOPPED),
    ],
)
def test_a_stop_ends_when_all_nodes_are_idle(reports: list[NodeReport], status: Status) -> None:
    assert verdict_while_stopping(reports).status is status


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
