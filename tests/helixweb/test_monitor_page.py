"""The monitor shows the numbers of one cluster, says what is missing, and never pretends; programs
read the same, and every moment is of the reader's time zone."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.common import events
from helixweb.common.models import Event
from helixweb.deployment.models import Deployment
from helixweb.inventory.models import Cluster
from helixweb.monitoring.history import FIELDS
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.services import record_traces
from runtime.protocol.phases import Phase
from tests.helixweb.looking import answered, contains, tight
from tests.helixweb.metric_samples import bare_sample
from tests.helixweb.process_doubles import HEARD, STATS, FakeCluster, served
from tests.helixweb.request_traces import made_up_trace

pytestmark = pytest.mark.usefixtures("time_stands_still")


@pytest.fixture
def ready(joined: FakeCluster) -> FakeCluster:
    """All nodes ready."""
    joined.deploy()
    joined.ready()
    return joined


def page(browser: Client, **query: Any) -> str:
    response = answered(browser.get("/monitor/", query), 200)
    return response.content.decode()


def figure(html: str, name: str) -> dict[str, Any]:
    found = re.search(rf'<script id="{name}-figure" type="application/json">(.*?)</script>', html)
    return json.loads(found[1])


def test_without_metrics_the_page_says_what_is_awaited(cluster: Cluster, browser: Client) -> None:
    html = page(browser)
    contains(html, "No metrics yet.", "begin when a coordinator has joined")
    assert "-figure" not in html


def test_nodes_that_none_reported_on_are_unknown(ready: FakeCluster, browser: Client) -> None:
    html = page(browser)
    assert "The coordinator has not reported" in html
    assert figure(html, "busy")["data"][0]["text"] == ["no report"] * 3


def test_the_state_of_what_serves_follows_its_events(ready: FakeCluster, browser: Client) -> None:
    deployment = Deployment.unscoped.get()
    (topics,) = re.findall(r'data-topics="([^"]*)"', page(browser))
    assert {deployment.topic, f"cluster:{ready.cluster.pk}"} <= set(topics.split(","))
    lost = next(iter(ready.used_agents))
    ready.used_agents[lost].beat(Phase.FAILED, generation=1, message="no memory")
    part = browser.get("/monitor/", headers={"HX-Request": "true"}).content.decode()
    contains(part, 'id="served"', "failed")
    assert "<html" not in part


def test_the_newest_numbers_are_in_tiles_and_charts(ready: FakeCluster, browser: Client) -> None:
    traffic = dict.fromkeys(ready.used_agents, HEARD)
    ready.coordinator.report(output_tokens_per_s=432.0, itl_p50_s=0.055, nodes=traffic)
    html = tight(page(browser, cluster=ready.cluster.pk))
    assert 'data-live="output">432<' in html
    contains(html, ">55 ms<", f"{STATS.kv_pages_used} of {STATS.kv_pages_total}")
    assert figure(html, "tokens")["data"][0]["y"] == [432.0]
    assert figure(html, "kv")["data"][0]["x"] == [0.25] * 3
    planned = figure(html, "flow")["data"][1]
    assert planned["name"] == "planned"
    assert max(planned["x"]) == pytest.approx(1.0)
    assert re.search(r'id="silence" hidden', html)


def test_a_silent_coordinator_is_named_with_since(ready: FakeCluster, browser: Client) -> None:
    ready.coordinator.report(output_tokens_per_s=432.0)
    past = timezone.now() - timedelta(seconds=90)
    MetricSample.unscoped.update(at=past, second=int(past.timestamp()))
    html = tight(page(browser))
    assert not re.search(r'id="silence" hidden', html)
    contains(html, 'data-live="age">1 min<', 'data-live="output">—<', "Nothing is measured now.")
    assert "Now: output" not in html


def test_tables_of_charts_are_newest_first_and_short(cluster: Cluster, browser: Client) -> None:
    now = timezone.now()
    MetricSample.objects.bulk_create(
        bare_sample(cluster, now - timedelta(seconds=age), output=float(age)) for age in range(200)
    )
    table = page(browser).split('id="tokens-table"')[1].split("</table>")[0]
    values = re.findall(r"<td>(\d+)</td><td>0</td>", table)
    assert values == [str(age) for age in range(60)]


def fill(cluster: Cluster, *, seconds: int, until: datetime) -> None:
    MetricSample.objects.bulk_create(
        bare_sample(cluster, until - timedelta(seconds=age), output=float(age))
        for age in range(seconds)
    )


def test_a_series_covers_five_minutes_second_by_second(cluster: Cluster, api: APIClient) -> None:
    fill(cluster, seconds=400, until=timezone.now())
    series = api.get(f"/api/v1/clusters/{cluster.pk}/metrics/").json()
    assert series["step_s"] == 1
    assert 298 <= len(series["points"]) <= 301
    assert series["points"][-1]["output_tokens_per_s"] == 0.0
    assert series["points"][0]["ttft_p50_s"] is None


@pytest.mark.parametrize(
    ("length", "step", "step_s"),
    [
        (timedelta(minutes=1), 20, 20),
        (timedelta(minutes=5), 1, 1),
        (timedelta(hours=1), 1, 4),
        (timedelta(hours=2), 1, 10),
        (timedelta(hours=4, minutes=59), 1, 20),
        (timedelta(hours=6), 1, 24),
        (timedelta(hours=24), 1, 300),
        (timedelta(days=7), 1, 900),
        (timedelta(days=30), 1, 900),
        (timedelta(seconds=-5), 1, 1),
    ],
)
def test_a_series_is_short_and_no_finer_than_what_is_kept(
    cluster: Cluster, api: APIClient, length: timedelta, step: int, step_s: int
) -> None:
    fill(cluster, seconds=60, until=timezone.now())
    since = (timezone.now() - length).isoformat()
    asked = {"since": since, "step": step}
    series = api.get(f"/api/v1/clusters/{cluster.pk}/metrics/", asked).json()
    assert series["step_s"] == step_s
    assert len(series["points"]) <= 900
    if step == 20:
        assert len(series["points"]) in (3, 4)


@pytest.mark.parametrize("query", [{"since": "yesterday"}, {"step": "0"}, {"step": "fast"}])
def test_a_bad_query_is_named(cluster: Cluster, api: APIClient, query: dict[str, Any]) -> None:
    answer = answered(api.get(f"/api/v1/clusters/{cluster.pk}/metrics/", query), 400)
    assert [error["field"] for error in answer.json()["errors"]] == list(query)


def test_without_metrics_the_answer_says_what_is_missing(cluster: Cluster, api: APIClient) -> None:
    answer = answered(api.get("/api/v1/metrics/latest/", {"cluster": cluster.pk}), 404)
    assert "its coordinator reports once it has joined" in answer.json()["detail"]
    assert api.get("/api/v1/metrics/latest/").status_code == 400
    assert api.get("/api/v1/metrics/latest/", {"cluster": 99}).status_code == 404
    assert api.get("/api/v1/clusters/99/metrics/").status_code == 404


SAID = {
    "output_tokens_per_s": 123.25, "prompt_tokens_per_s": 456.5, "ttft_p50_s": 0.125,
    "ttft_p95_s": 0.375, "itl_p50_s": 0.0211, "itl_p95_s": 0.0422, "tpot_p50_s": 0.0233,
    "tpot_p95_s": 0.0466, "e2e_p50_s": 2.125, "e2e_p95_s": 5.375,
}  # fmt: skip


@pytest.mark.usefixtures("time_stands_still")
def test_pages_and_api_show_the_same(joined: FakeCluster, browser: Client, api: APIClient) -> None:
    row = served(joined)
    joined.coordinator.report(**SAID, requests_running=7, requests_waiting=3)
    overview, monitor = browser.get("/"), browser.get(f"/monitor/?cluster={joined.cluster.pk}")
    latest = api.get(f"/api/v1/metrics/latest/?cluster={joined.cluster.pk}").json()
    (point,) = api.get(f"/api/v1/clusters/{joined.cluster.pk}/metrics/").json()["points"]
    expected = {**SAID, "running": 7, "waiting": 3}
    for told in (overview.context["view"]["numbers"], monitor.context["now"], latest, point):
        assert {name: told[name] for name in FIELDS} == pytest.approx(expected)
    views = overview.context["view"]["serving"], monitor.context["serving"]
    for kind in ("kv_used_ratio", "forecast_tokens_per_s", "max_flow_tokens_per_s"):
        assert getattr(views[0], kind) == getattr(views[1], kind)
    pages = latest["nodes"].values()
    used = sum(node["kv_used_pages"] for node in pages if node["kv_total_pages"])
    total = sum(node["kv_total_pages"] for node in pages if node["kv_total_pages"])
    assert views[0].kv_used_ratio == pytest.approx(used / total)
    of_deployment = browser.get(f"/deployments/{row.pk}/")
    for words in ("123", "125 ms"):
        for page in (overview, monitor, of_deployment):
            assert re.search(rf">\s*{words}", page.content.decode()), words


NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
IN_TOKYO = "2026-03-01 21:00:00"


@pytest.fixture
def tokyo(browser: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A user in Tokyo, at noon in Greenwich."""
    monkeypatch.setattr(timezone, "now", lambda: NOON)
    browser.cookies["zone"] = "Asia/Tokyo"
    return browser


def text(tokyo: Client, path: str) -> str:
    answer = answered(tokyo.get(path), 200)
    return answer.content.decode()


def sampled(cluster: Cluster, **more: Any) -> None:
    bare_sample(cluster, NOON, output=432.0, **more).save()


def test_the_monitor_writes_all_in_the_readers_zone(cluster: Cluster, tokyo: Client) -> None:
    sampled(cluster)
    html = text(tokyo, f"/monitor/?cluster={cluster.pk}")
    assert f"<td>{IN_TOKYO}</td><td>432</td>" in html
    assert '"2026-03-01T21:00:00+09:00"' in html, "in charts, too"
    assert "times in Asia/Tokyo" in html
    assert "UTC" not in html


def test_what_happened_last_is_told_in_the_readers_zone(cluster: Cluster, tokyo: Client) -> None:
    events.emit(f"cluster:{cluster.pk}", "event", {"text": "A lamp was lit."})
    Event.objects.update(created_at=NOON)
    html = text(tokyo, "/")
    contains(html, "times in Asia/Tokyo", ">21:00:00</time>")


def test_a_request_names_the_zone_of_its_arrival(cluster: Cluster, tokyo: Client) -> None:
    record_traces(cluster.pk, [made_up_trace(0)])
    assert f"{IN_TOKYO} JST" in text(tokyo, "/requests/0000000000000000/")
    html = text(tokyo, "/requests/")
    assert "UTC" not in html
