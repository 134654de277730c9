"""Programs read metrics: the newest sample, and a series over time."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.inventory.models import Cluster
from helixweb.monitoring.models import MetricSample
from tests.helixweb.looking import answered
from tests.helixweb.metric_samples import bare_sample

pytestmark = pytest.mark.usefixtures("time_stands_still")


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
