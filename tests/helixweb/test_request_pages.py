"""Traces of requests: kept, listed, shown on a time line, forgotten in time."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.charts.timelines import gantt
from helixweb.inventory.models import Cluster, Coordinator
from helixweb.monitoring import services
from helixweb.monitoring.models import TracedRequest
from helixweb.monitoring.request_pages import to_first_token
from runtime.protocol.control import LiveRequestState, ReportedRequest
from runtime.protocol.request_trace import PartKind, PartPhase, TracePart
from tests.helixweb.looking import contains, statements
from tests.helixweb.process_doubles import FakeCoordinator
from tests.helixweb.request_traces import made_up_trace


def test_traces_of_a_report_become_rows_once(cluster: Cluster, user: Any) -> None:
    coordinator = FakeCoordinator(cluster, user)
    told = [made_up_trace(number) for number in range(3)]
    coordinator.report(traces=tuple(told))
    coordinator.report(traces=tuple(told))
    rows = TracedRequest.unscoped.all()
    assert [row.request for row in rows] == [f"{number:016x}" for number in (2, 1, 0)]
    row = rows[2]
    assert row.arrived_at == datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
    assert row.nodes == ["tower", "laptop"]
    assert row.tpot_s == pytest.approx((2.0 - 0.66) / 4)


def test_live_requests_are_listed(cluster: Cluster, user: Any, browser: Client) -> None:
    coordinator = FakeCoordinator(cluster, user)
    told = {"age_s": 61.0, "model_name": "tiny", "prompt_tokens": 12, "output_tokens": 3}
    waits = ReportedRequest(request="0" * 15 + "a", state=LiveRequestState.WAITING, **told)
    writes = ReportedRequest(
        request="0" * 15 + "b", state=LiveRequestState.WRITING, nodes=("tower", "mini"), **told
    )
    coordinator.report(requests=(waits, writes), requests_waiting=4, requests_running=1)
    page = browser.get("/requests/").content.decode()
    contains(page, "4 waiting, 1 running", "3 more are not listed")
    assert page.index(waits.request) < page.index(writes.request)
    assert "tower → mini" in page
    Coordinator.unscoped.update(last_seen_at=timezone.now() - timedelta(minutes=1))
    alone = browser.get("/requests/", headers={"HX-Request": "true"}).content.decode()
    assert "No request waits or runs." in alone
    assert "<form" not in alone


def test_a_request_that_did_not_complete_has_no_tpot(cluster: Cluster) -> None:
    services.record_traces(cluster.pk, [made_up_trace(1, outcome="cancelled")])
    assert TracedRequest.unscoped.get().tpot_s is None


def test_the_list_is_paged_and_filtered_in_the_database(cluster: Cluster, browser: Client) -> None:
    services.record_traces(cluster.pk, [made_up_trace(number) for number in range(120)])
    few = statements(lambda: browser.get("/requests/"))
    page = browser.get("/requests/").content.decode()
    assert page.count("/requests/00000") == 50
    assert "1 to 50 of 120" in page
    services.record_traces(cluster.pk, [made_up_trace(number) for number in range(120, 400)])
    many = statements(lambda: browser.get("/requests/?page=3&order=-e2e_s"))
    assert len(many) == len(few)
    assert not any('"detail"' in sql for sql in many)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"node": "laptop"}, {0, 1, 2}),
        ({"node": "lap"}, set()),
        ({"node": "mini"}, {3}),
        ({"outcome": "complete"}, {0, 3}),
        ({"outcome": "failed"}, {1}),
        ({"outcome": "cancelled"}, {2}),
        ({"slower_than": "3"}, {3}),
        ({"request": "0000000000000002"}, {2}),
    ],
)
def test_filters_leave_what_matches(
    cluster: Cluster, browser: Client, api: APIClient, query: dict[str, str], found: set[int]
) -> None:
    alone = [{"node": "mini", "first": 0, "end": 4}]
    services.record_traces(
        cluster.pk,
        [
            made_up_trace(0),
            made_up_trace(1, outcome="stage_error"),
            made_up_trace(2, outcome="cancelled"),
            made_up_trace(3, e2e_s=9.0, pipeline=alone),
        ],
    )
    page = browser.get("/requests/", query).content.decode()
    assert {number for number in range(4) if f"/requests/{number:016x}/" in page} == found
    answer = api.get("/api/v1/requests/", query).json()
    assert {int(row["request"], 16) for row in answer["results"]} == found
    assert answer["count"] == len(found)


def test_the_page_shows_a_bar_for_every_stage_and_link(cluster: Cluster, browser: Client) -> None:
    services.record_traces(cluster.pk, [made_up_trace(7)])
    page = browser.get(f"/requests/{7:016x}/").content.decode()
    for text in ("tower → laptop", "5 tokens in 2 s", "First-token", "tiny-llama"):
        assert text.lower() in page.lower(), text
    contains(page, 'id="gantt-table"', 'role="img"')


def test_the_parts_of_the_table_add_up_to_the_end_to_end_time() -> None:
    rows = gantt(made_up_trace(1)).rows
    assert sum(float(row[4]) for row in rows) == pytest.approx(2.0)
    assert sum(float(str(row[5]).rstrip("%")) for row in rows) == pytest.approx(100.0)


def test_what_the_first_token_waited_for_adds_up_to_the_ttft() -> None:
    lines = to_first_token(made_up_trace(1))
    assert sum(seconds for _, seconds, _ in lines) == pytest.approx(0.66)
    assert {label for label, *_ in lines} >= {"computing on tower", "from tower to laptop"}


def test_what_an_instance_does_not_tell_of_is_one_part_of_its_node() -> None:
    engine = TracePart(
        node="tower", kind=PartKind.ENGINE, phase=PartPhase.PROMPT, seconds=0.66, count=1
    )
    trace = made_up_trace(1, parts=(engine,))
    assert gantt(trace).rows[0][:3] == ("tower", "in the instance", "prompt")
    assert to_first_token(trace)[0][0] == "in the instance on tower"


def test_rows_stand_in_the_order_a_token_passes_them() -> None:
    axis = gantt(made_up_trace(1)).figure["layout"]["yaxis"]
    assert axis["tickvals"] == [
        "coordinator", "coordinator → tower", "tower", "tower → laptop", "laptop",
        "laptop → coordinator", "laptop → tower",
    ]  # fmt: skip


def test_a_program_gets_the_parts_and_the_time_line(cluster: Cluster, api: APIClient) -> None:
    services.record_traces(cluster.pk, [made_up_trace(7)])
    answer = api.get(f"/api/v1/requests/{7:016x}/").json()
    assert sum(part["seconds"] for part in answer["parts"]) == pytest.approx(answer["e2e_s"])
    assert answer["token_times_s"][-1] == 2.0
    assert answer["rows"][0]["spans"] == [[0.0, 0.1, 0.1, 1]]
    assert answer["nodes"] == ["tower", "laptop"]


def test_traces_are_pruned_by_age_and_count(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "MOST_OF_A_CLUSTER", 5)
    now = timezone.now()
    old = (now - timedelta(hours=25)).timestamp()
    services.record_traces(cluster.pk, [made_up_trace(1, arrived_at=old)])
    services.record_traces(
        cluster.pk,
        [made_up_trace(n, arrived_at=now.timestamp() - 100 + n) for n in range(10, 20)],
    )
    services.prune_traces(now)
    kept = sorted(int(row.request, 16) for row in TracedRequest.unscoped.all())
    assert kept == [15, 16, 17, 18, 19]
