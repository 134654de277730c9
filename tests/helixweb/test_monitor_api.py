"""Programs read metrics: the newest sample, and a series over time."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.inventory.models import Cluster
from helixweb.monitoring.models import MetricSample
from tests.helixweb.metric_samples import bare_sample

pytestmark = pytest.mark.usefixtures("time_stands_still")


def fill(cluster: Cluster, *, seconds: int, until: datetime) -> None:
    MetricSample.objects.bulk_create(
        bare_sample(cluster, until - timedelta(seconds=age), output=float(age))
        for age in range(seconds)
    )


def test_a_series_covers_the_last_five_minutes_second_by_second(
    cluster: Cluster, api: APIClient
) -> None:
    fill(cluster, seconds=400, until=timezone.now())
    series = api.get(f"/api/v1/clusters/{cluster.pk}/metrics/").json()
    assert series["step_s"] == 1
    assert 298 <= len(series["points"]) <= 301
    assert series["points"][-1]["output_tokens_per_s"] == 0.0
    assert series["points"][0]["ttft_p50_s"] is None


def test_a_series_takes_since_and_step(cluster: Cluster, api: APIClient) -> None:
    now = timezone.now()
    fill(cluster, seconds=100, until=now)
    since = (now - timedelta(seconds=60)).isoformat()
    series = api.get(f"/api/v1/clusters/{cluster.pk}/metrics/", {"since": since, "step": 20}).json()
    assert series["step_s"] == 20
    assert len(series["points"]) in (3, 4)


@pytest.mark.parametrize(
    ("length", "step_s"), [(timedelta(hours=4, minutes=59), 20), (timedelta(days=30), 900)]
)
def test_a_series_has_at_most_900_points_of_a_week(
    cluster: Cluster, api: APIClient, length: timedelta, step_s: int
) -> None:
    since = (timezone.now() - length).isoformat()
    series = api.get(f"/api/v1/clusters/{cluster.pk}/metrics/", {"since": since, "step": 1}).json()
    assert series["step_s"] == step_s
    assert series["points"] == []


@pytest.mark.parametrize("query", [{"since": "yesterday"}, {"step": "0"}, {"step": "fast"}])
def test_a_bad_query_names_its_parameter(
    cluster: Cluster, api: APIClient, query: dict[str, Any]
) -> None:
    answer = api.get(f"/api/v1/clusters/{cluster.pk}/metrics/", query)
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json()["errors"]] == list(query)


def test_the_newest_sample_has_every_node(cluster: Cluster, api: APIClient) -> None:
    sample = bare_sample(
        cluster, timezone.now(), output=3.0, nodes={"tower": {"kv_used_pages": 1, "sequences": 2}}
    )
    sample.save()
    latest = api.get("/api/v1/metrics/latest/", {"cluster": cluster.pk}).json()
    assert latest["output_tokens_per_s"] == 3.0
    assert latest["nodes"]["tower"]["kv_used_pages"] == 1
    assert latest["nodes"]["tower"]["busy_ratio"] is None


def test_without_metrics_the_answer_says_what_is_missing(cluster: Cluster, api: APIClient) -> None:
    answer = api.get("/api/v1/metrics/latest/", {"cluster": cluster.pk})
    assert answer.status_code == 404
    assert "its coordinator reports once it has joined" in answer.json()["detail"]
    assert api.get("/api/v1/metrics/latest/").status_code == 400
    assert api.get("/api/v1/metrics/latest/", {"cluster": 99}).status_code == 404
    assert api.get("/api/v1/clusters/99/metrics/").status_code == 404
