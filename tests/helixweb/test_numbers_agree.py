"""Overview, Monitor and the REST API tell the same of the same moment."""

import re

import pytest
from django.test import Client
from rest_framework.test import APIClient

from helixweb.monitoring.history import FIELDS
from tests.helixweb.process_doubles import FakeCluster, served

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
