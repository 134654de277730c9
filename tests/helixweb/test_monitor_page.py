"""The monitor shows the numbers of one cluster, says what is missing, and never pretends."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from helixweb.deployment.models import Deployment
from helixweb.inventory.models import Cluster
from helixweb.monitoring.models import MetricSample
from runtime.protocol.phases import Phase
from tests.helixweb.looking import answered, contains, tight
from tests.helixweb.metric_samples import bare_sample
from tests.helixweb.process_doubles import HEARD, STATS, FakeCluster

pytestmark = pytest.mark.usefixtures("time_stands_still")


@pytest.fixture
def joined(joined: FakeCluster) -> FakeCluster:
    """All nodes ready."""
    joined.deploy()
    for agent in joined.used_agents.values():
        agent.beat(Phase.READY, generation=1)
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


def test_nodes_that_none_reported_on_are_unknown(joined: FakeCluster, browser: Client) -> None:
    html = page(browser)
    assert "The coordinator has not reported" in html
    assert figure(html, "busy")["data"][0]["text"] == ["no report"] * 3


def test_the_state_of_what_serves_follows_its_events(joined: FakeCluster, browser: Client) -> None:
    deployment = Deployment.unscoped.get()
    (topics,) = re.findall(r'data-topics="([^"]*)"', page(browser))
    assert {deployment.topic, f"cluster:{joined.cluster.pk}"} <= set(topics.split(","))
    lost = next(iter(joined.used_agents))
    joined.used_agents[lost].beat(Phase.FAILED, generation=1, message="no memory")
    part = browser.get("/monitor/", headers={"HX-Request": "true"}).content.decode()
    contains(part, 'id="served"', "failed")
    assert "<html" not in part


def test_the_newest_numbers_are_in_tiles_and_charts(joined: FakeCluster, browser: Client) -> None:
    traffic = dict.fromkeys(joined.used_agents, HEARD)
    joined.coordinator.report(output_tokens_per_s=432.0, itl_p50_s=0.055, nodes=traffic)
    html = tight(page(browser, cluster=joined.cluster.pk))
    assert 'data-live="output">432<' in html
    contains(html, ">55 ms<", f"{STATS.kv_pages_used} of {STATS.kv_pages_total}")
    assert figure(html, "tokens")["data"][0]["y"] == [432.0]
    assert figure(html, "kv")["data"][0]["x"] == [0.25] * 3
    planned = figure(html, "flow")["data"][1]
    assert planned["name"] == "planned"
    assert max(planned["x"]) == pytest.approx(1.0)
    assert re.search(r'id="silence" hidden', html)


def test_a_silent_coordinator_is_named_with_since(joined: FakeCluster, browser: Client) -> None:
    joined.coordinator.report(output_tokens_per_s=432.0)
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
