"""The site's /metrics: what it tells, to whom, and that no list of names grows without bound."""

from typing import Any

import pytest
import scrapes
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from helixweb.access.scope import WHOLE_SITE
from helixweb.common import metrics
from helixweb.common.api_keys import create_api_key
from helixweb.inventory.models import Cluster
from runtime.protocol.exposition import gauge
from tests.helixweb.looking import answered

pytestmark = pytest.mark.usefixtures("time_stands_still")


@pytest.fixture
def key(db: None) -> str:
    owner = get_user_model().objects.create_superuser("root")
    return create_api_key(name="prometheus", user=owner, scopes=["read"]).secret


def scrape(client: Client, key: str = "", **more: Any) -> Any:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    headers["Accept"] = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    return client.get("/metrics", headers=headers, **more)


def test_a_key_that_may_read_gets_the_page_and_nobody_else(client: Client, key: str) -> None:
    answer = answered(scrape(client, key), 200)
    assert answer["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert scrapes.value(answer.content, "helix_outbox_events_total") >= 0
    refused = answered(scrape(client), 401)
    assert refused["Content-Type"] == "application/problem+json"
    assert scrape(client, key + "x").status_code == 401
    owner = get_user_model().objects.get(username="root")
    serving = create_api_key(name="chat", user=owner, scopes=["serve"]).secret
    assert scrape(client, serving).status_code == 403


def test_programs_of_this_machine_need_no_key_where_that_is_set_and_proxies_do(
    client: Client, db: None, settings: Any
) -> None:
    assert scrape(client).status_code == 401
    settings.HELIX_METRICS_ON_LOOPBACK = True
    assert scrape(client).status_code == 200
    assert scrape(client, REMOTE_ADDR="10.0.0.7").status_code == 401
    assert scrape(client, HTTP_X_FORWARDED_FOR="127.0.0.1").status_code == 401


def test_a_cluster_at_work_is_told_by_the_numbers_of_its_pages(cluster: Cluster, user: Any) -> None:
    joined, deployment = scrapes.serve(cluster, user)
    page = scrapes.site_page()
    name = cluster.name
    assert scrapes.value(page, "helix_nodes", cluster=name, state="online") == 3
    assert scrapes.value(page, "helix_node_up", cluster=name, node="tower") == 1
    assert scrapes.value(page, "helix_front_up", cluster=name) == 1
    assert scrapes.value(page, "helix_deployment_status", cluster=name, state="ready") == 1
    assert scrapes.value(page, "helix_deployment_status", cluster=name, state="failed") == 0
    assert scrapes.value(page, "helix_deployment_generation") == deployment.generation
    bound = joined.plan.upper_bound_tokens_per_s
    assert scrapes.value(page, "helix_plan_bound_tokens_per_second") == pytest.approx(bound)
    assert scrapes.value(page, "helix_cluster_latency_seconds", kind="ttft", quantile="0.95") == 0.4
    used = next(iter(joined.used_agents))
    assert scrapes.value(page, "helix_node_kv_pages", node=used, kind="used") == 25
    assert scrapes.value(page, "helix_node_kv_promised_ratio", node=used) == 0.75
    links = [
        told
        for sample, told, _ in scrapes.samples(page)
        if sample == "helix_link_bandwidth_bytes_per_second" and told["kind"] == "measured"
    ]
    assert links
    assert scrapes.value(page, "helix_link_slow", source=links[0]["source"]) == 1
    joined.silence("tower")
    page = scrapes.site_page()
    assert scrapes.value(page, "helix_node_up", node="tower") == 0
    assert scrapes.value(page, "helix_node_heartbeat_age_seconds", node="tower") == 60
    assert scrapes.value(page, "helix_nodes", state="lost") == 1


def test_unfinished_tasks_are_counted_by_kind(plan: Any) -> None:
    page = scrapes.site_page()
    assert scrapes.value(page, "helix_tasks", kind="simulation", status="queued") == 1
    assert scrapes.value(page, "helix_tasks", kind="planrun", status="queued") == 0


def test_what_a_client_makes_up_becomes_no_label(client: Client, db: None) -> None:
    client.generic("BREW", "/healthz")
    page = scrapes.site_page()
    methods = {
        told["method"]
        for name, told, _ in scrapes.samples(page)
        if name == "helix_web_requests_total"
    }
    assert "other" in methods
    assert "BREW" not in methods


def test_a_family_of_too_many_lines_says_so(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [({"name": str(number)}, float(number)) for number in range(12)]
    monkeypatch.setattr(metrics, "MOST_LINES", 10)
    many = gauge("helix_many", "words", lines)
    monkeypatch.setattr(metrics, "collectors", lambda: [lambda now, scope: [many]])
    page = metrics.metrics_page(timezone.now(), WHOLE_SITE)
    assert len([name for name, _, _ in scrapes.samples(page) if name == "helix_many"]) == 10
    assert scrapes.value(page, "helix_metrics_left_out", family="helix_many") == 2
