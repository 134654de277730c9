"""Live pages without a machine: simulated traffic, marked wherever it shows."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.common.models import Event
from helixweb.inventory.services.demonstration import DEMO_NAME
from helixweb.monitoring import simulated_traffic
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.simulated_traffic import (
    TrafficOptions,
    TrafficRefused,
    simulate_traffic,
)
from helixweb.planning.models import Plan
from tests.helixweb.looking import contains
from tests.helixweb.metric_samples import bare_sample

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def wall_clock() -> tuple[Callable[[], float], Callable[[float], None]]:
    """A clock that only sleeping moves, and the sleep."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return (lambda: now[0]), sleep


def served(plan: Plan, begin: datetime = BEGIN, **options: Any) -> list[MetricSample]:
    clock, sleep = wall_clock()
    written = simulate_traffic(
        plan,
        options=TrafficOptions(**options),
        clock=clock,
        sleep=sleep,
        now=lambda: begin + timedelta(seconds=clock()),
    )
    samples = list(MetricSample.unscoped.filter(cluster=plan.cluster, at__gt=begin))
    assert len(samples) == written
    return samples


def test_the_traffic_is_the_share_of_the_peak_and_within_the_nodes_room(plan: Plan) -> None:
    low = served(plan, duration_s=60, speed=10, share=0.25)
    again = served(plan, BEGIN + timedelta(hours=1), duration_s=60, speed=10, share=0.25)
    high = served(plan, BEGIN + timedelta(hours=2), duration_s=60, speed=10, share=0.75)
    assert [sample.nodes for sample in low] == [sample.nodes for sample in again], "of one seed"
    assert [(sample.at - BEGIN).total_seconds() for sample in low] == list(range(1, 61))
    assert {sample.simulated_plan_id for sample in low} == {plan.pk}
    assert Event.objects.filter(topic=f"metrics:{plan.cluster_id}").count() == 180

    def mean(samples: list[MetricSample]) -> float:
        return sum(sample.output_tokens_per_s for sample in samples[20:]) / len(samples[20:])

    assert mean(high) == pytest.approx(3 * mean(low), rel=0.25)
    for sample in [*low, *high]:
        assert set(sample.nodes) == set(plan.document["placement"])
        for node in sample.nodes.values():
            assert 0 <= node["busy_ratio"] <= 1
            assert 0 <= node["kv_used_pages"] <= node["kv_total_pages"]
    assert high[-1].ttft_p50_s > 0  # type: ignore[operator]
    assert high[-1].ttft_p50_s <= high[-1].ttft_p95_s  # type: ignore[operator]


def test_every_page_that_shows_it_says_simulated(
    browser: Client, api: APIClient, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now)  # however long the pages take
    served(plan, now - timedelta(seconds=30), duration_s=30)
    monitor = browser.get("/monitor/", {"cluster": plan.cluster_id}).content.decode()
    assert "No machine computes these numbers" in monitor
    contains(monitor, 'id="monitor-nodes"', 'data-simulated="true"')
    overview = browser.get("/", {"cluster": plan.cluster_id}).content.decode()
    contains(overview, "simulated traffic", '<span class="badge warn">simulated</span>')
    latest = api.get("/api/v1/metrics/latest/", {"cluster": plan.cluster_id}).data
    assert latest["simulated"]
    series = api.get(f"/api/v1/clusters/{plan.cluster_id}/metrics/").data
    assert series["simulated"]


def test_lines_keep_saying_simulated_when_it_has_ended(browser: Client, plan: Plan) -> None:
    served(plan, timezone.now() - timedelta(seconds=100), duration_s=30)
    monitor = browser.get("/monitor/", {"cluster": plan.cluster_id}).content.decode()
    contains(monitor, "simulated traffic that has ended", "No report from the simulation")


def test_a_cluster_whose_coordinator_reports_is_left_alone(plan: Plan) -> None:
    bare_sample(plan.cluster, BEGIN, output=1.0).save()
    with pytest.raises(TrafficRefused, match="is reporting"):
        served(plan, duration_s=5)


@pytest.mark.parametrize("key", ["share", "speed", "duration_s"])
def test_options_out_of_range_are_refused(key: str) -> None:
    changed: dict[str, Any] = {key: 0.0}
    with pytest.raises(TrafficRefused, match=key):
        TrafficOptions(**changed)


@pytest.mark.django_db
def test_the_command_without_a_plan_makes_the_demo_cluster_and_serves_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simulated_traffic, "SEARCH_S", 0.5)
    call_command("simulate_traffic", "--duration", "1")
    plan = Plan.unscoped.get(cluster__name=DEMO_NAME)
    sample = MetricSample.unscoped.get(cluster=plan.cluster)
    assert sample.simulated_plan_id == plan.pk
    assert set(sample.nodes) == set(plan.document["placement"])
    call_command("simulate_traffic", "--duration", "1")
    assert Plan.unscoped.get(cluster__name=DEMO_NAME) == plan  # not planned a second time


def test_the_command_names_a_plan_that_is_not_there(plan: Plan) -> None:
    with pytest.raises(CommandError, match=f"There is no plan {plan.pk + 1}"):
        call_command("simulate_traffic", str(plan.pk + 1))
