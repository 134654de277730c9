"""Seven days of metrics, latencies as counts, deployments marked, flow measured and planned; and
simulated traffic, marked wherever it shows."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import cycle
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.charts.flow_diagrams import (
    FULL_COLOUR,
    IDLE_COLOUR,
    NOTHING,
    load_flow,
    measured_flow,
)
from helixweb.charts.plan_graph import PlanGraph
from helixweb.common.models import Event
from helixweb.inventory.models import Cluster
from helixweb.inventory.services.demonstration import DEMO_NAME
from helixweb.monitoring import simulated_traffic
from helixweb.monitoring.history import latency_columns, points, roll_up, smallest_step_s
from helixweb.monitoring.models import MetricRollup, MetricSample
from helixweb.monitoring.moment import measured_rates
from helixweb.planning.models import Plan
from planner.domain.cluster import SINK, SOURCE
from planner.serialization import plan_from_dict, problem_from_dict
from runtime.protocol.control import LATENCY_BOUNDS_S
from tests.helixweb.looking import contains
from tests.helixweb.metric_samples import bare_sample
from tests.helixweb.process_doubles import FakeCluster, FakeCoordinator

INTERVALS = len(LATENCY_BOUNDS_S) + 1


def totals(**counted: int) -> dict[str, list[int]]:
    """Everything in the fourth interval."""
    return {
        kind: [number if index == 3 else 0 for index in range(INTERVALS)]
        for kind, number in counted.items()
    }


def test_samples_are_rolled_up_once_and_forgotten_after_a_week(cluster: Cluster) -> None:
    now = timezone.now().replace(minute=7, second=0, microsecond=0)
    begin = now - timedelta(minutes=27)  # twenty minutes before the hour
    MetricSample.objects.bulk_create(
        bare_sample(
            cluster,
            begin + timedelta(seconds=second),
            output=float(second // 300),
            ttft_p95_s=second / 1000,
            latency_totals=totals(ttft=second),
        )
        for second in range(0, 1500, 10)
    )
    MetricRollup.objects.create(
        cluster=cluster,
        second=int((now - timedelta(days=8)).timestamp()) // 300 * 300,
        values={},
        simulated=False,
    )
    roll_up(now)
    roll_up(now)
    rows = list(MetricRollup.unscoped.all())
    assert [row.values["output_tokens_per_s"] for row in rows] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert [row.values["ttft_p95_s"] for row in rows] == [0.29, 0.59, 0.89, 1.19, 1.49]
    assert rows[0].values["latency_totals"]["ttft"][3] == 290
    assert not any(row.simulated for row in rows)


@pytest.mark.parametrize(
    ("length", "step_s", "expected"),
    [
        (timedelta(days=7), 900, [11.0, 99.0]),
        (timedelta(hours=24), 300, [10.0, 11.0, 12.0, 99.0]),
    ],
)
def test_long_series_are_of_roll_ups_and_the_newest_samples(
    cluster: Cluster, length: timedelta, step_s: int, expected: list[float]
) -> None:
    now = timezone.now()
    second = int((now - length / 2).timestamp()) // 900 * 900
    MetricRollup.objects.bulk_create(
        MetricRollup(
            cluster=cluster,
            second=second + 300 * step,
            values={"output_tokens_per_s": 10.0 + step, "ttft_p95_s": float(step)},
            simulated=False,
        )
        for step in range(3)
    )
    for age in (timedelta(0), length / 2):  # the older one is rolled up already
        bare_sample(cluster, now - age, output=99.0).save()
    since = now - length
    assert smallest_step_s(since=since, now=now) == step_s
    found = [
        point
        for point in points(cluster, since=since, until=now, step_s=step_s)
        if point.values is not None
    ]
    assert [point["output_tokens_per_s"] for point in found] == expected
    assert found[-2]["ttft_p95_s"] == 2.0
    assert found[0]["itl_p50_s"] is None


def test_columns_hold_what_was_counted_in_their_step(cluster: Cluster) -> None:
    now = timezone.now()
    MetricSample.objects.bulk_create(
        bare_sample(
            cluster,
            now - timedelta(seconds=60 - second),
            output=1.0,
            latency_totals=totals(itl=7 * second),
        )
        for second in range(60)
    )
    columns = latency_columns(cluster, "itl", since=now - timedelta(seconds=60), until=now)
    assert len(columns) >= 55
    assert {column.counts[3] for column in columns if column.counts} == {7}


@pytest.mark.parametrize(
    ("fronts", "counted", "expected"),
    [
        (1, {3: 500, 2: 510, 1: 4, 0: 6}, [10, 4, 2]),
        (2, {3: 500 + 300, 2: 510 + 310, 1: 4 + 320, 0: 6 + 325}, [20, None, 7]),
        (1, {40: 1, 1: 900, 0: 910}, [None, 10]),
    ],
    ids=["a coordinator restarted", "one of two restarted", "after a silence"],
)
def test_of_a_step_whose_count_is_not_known_nothing_is_claimed(
    cluster: Cluster, user: Any, fronts: int, counted: dict[int, int], expected: list[int | None]
) -> None:
    for number in range(fronts):
        FakeCoordinator(cluster, user, port=7049 + number, name=f"front-{number}")
    now = timezone.now()
    for age, total in counted.items():
        bare_sample(
            cluster, now - timedelta(seconds=age), output=1.0, latency_totals=totals(itl=total)
        ).save()
    columns = latency_columns(cluster, "itl", since=now - timedelta(seconds=60), until=now)
    found = [None if column.counts is None else column.counts[3] for column in columns]
    assert found == expected


@pytest.mark.parametrize("age_s", [0, 3 * 86400])
def test_the_page_draws_every_range(cluster: Cluster, browser: Client, age_s: int) -> None:
    at = timezone.now() - timedelta(seconds=age_s)
    bare_sample(cluster, at, output=1.0, latency_totals=totals(ttft=1)).save()
    steps_s = {"5m": 1, "1h": 4, "6h": 24, "24h": 300, "7d": 900, "7y": 1}
    kinds = cycle(("ttft", "itl", "tpot", "e2e"))
    for (name, step_s), kind in zip(steps_s.items(), kinds, strict=False):
        page = browser.get("/monitor/", {"range": name, "kind": kind}).content.decode()
        contains(page, 'id="heat-figure"', 'id="e2e-figure"')
        contains(page, f'data-step="{step_s}"', f"One point every {step_s} s")


def test_deployments_are_marked_in_charts(joined: FakeCluster, browser: Client) -> None:
    made = joined.deploy()
    joined.coordinator.report()
    page = browser.get("/monitor/").content.decode()
    found = re.search(r'<script id="ttft-figure" type="application/json">(.*?)</script>', page)
    layout = json.loads(found[1])["layout"]
    assert [each["text"] for each in layout["annotations"]] == [f"#{made.pk}"]
    assert layout["shapes"][0]["x0"] == layout["annotations"][0]["x"]
    assert f"deployment #{made.pk} at" in page


def rates_as_planned(plan: Plan, *, share: float) -> dict[tuple[str, str], float]:
    return {
        (edge.source, edge.target): share * edge.flow_tokens_per_s
        for edge in plan_from_dict(plan.document).flow.edges
    }


def graph_of(plan: Plan) -> PlanGraph:
    return PlanGraph(problem_from_dict(plan.problem), plan_from_dict(plan.document))


def test_flow_at_half_the_load_is_as_planned(plan: Plan) -> None:
    chart = measured_flow(graph_of(plan), rates_as_planned(plan, share=0.5))
    assert {row[4] for row in chart.rows} == {"as planned"}
    assert "0 of" in chart.summary


def test_a_connection_that_carries_another_share_is_told_apart(plan: Plan) -> None:
    rates = rates_as_planned(plan, share=1.0)
    ends = [edge for edge in rates if SINK not in edge and SOURCE not in edge and rates[edge] > 0]
    rates[ends[0]] *= 0.3
    chart = measured_flow(graph_of(plan), rates)
    odd = {(row[0], row[1]): row[4] for row in chart.rows if row[4] != "as planned"}
    assert odd == {ends[0]: "less than planned"}
    silent = measured_flow(graph_of(plan), dict.fromkeys(rates, 0.0))
    assert {row[4] for row in silent.rows} == {"nothing passed"}


def test_nodes_and_links_are_coloured_by_how_full_they_are(plan: Plan) -> None:
    graph = graph_of(plan)
    planned = graph.plan
    busy = {name: 0.9 if name == "mini" else 0.2 for name in planned.placement.layers}
    rates = rates_as_planned(plan, share=0.1)
    chart = load_flow(graph, rates, busy | {"laptop": None})
    (sankey,) = chart.figure["data"]
    of_nodes = dict(zip(sankey["node"]["label"], sankey["node"]["color"], strict=True))
    assert of_nodes["mini"] == FULL_COLOUR
    assert of_nodes["tower"] == IDLE_COLOUR
    assert of_nodes["laptop"] == NOTHING
    assert "Busiest node: mini, 90% of its time." in chart.summary
    capacity = {
        (edge.source, edge.target): edge.capacity_tokens_per_s for edge in planned.flow.edges
    }
    full = load_flow(graph, capacity, busy)
    assert {row[4] for row in full.rows} == {"100%"}
    assert {colour[:7] for colour in full.figure["data"][0]["link"]["color"]} == {FULL_COLOUR}
    assert load_flow(graph, None, {}).summary == "No node is reporting."


def test_rates_are_of_the_last_minute_of_the_same_coordinator(cluster: Cluster) -> None:
    now = timezone.now()
    for age, total in ((90, 0), (40, 1000), (0, 3000)):
        bare_sample(
            cluster,
            now - timedelta(seconds=age),
            output=1.0,
            edge_tokens_total={"source->tower": total, "tower->sink": total},
        ).save()
    newest = MetricSample.unscoped.order_by("-second")[0]
    assert measured_rates(newest) == {
        ("source", "tower"): pytest.approx(50.0),
        ("tower", "sink"): pytest.approx(50.0),
    }
    newest.edge_tokens_total = {"source->tower": 5}
    assert measured_rates(newest) is None
    assert measured_rates(None) is None


def test_charts_can_be_asked_for_anew(cluster: Cluster, user: Any, browser: Client) -> None:
    address = {"cluster": cluster.pk, "kind": "ttft", "range": "1h"}
    assert browser.get("/monitor/chart/flow-measured/", address).status_code == 404
    joined = FakeCluster(cluster, user)
    joined.deploy()
    for name in ("heat", "flow-measured"):
        answer = browser.get(f"/monitor/chart/{name}/", address).json()
        assert set(answer) == {"figure", "summary", "rows"}


BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def wall_clock() -> tuple[Callable[[], float], Callable[[float], None]]:
    """A clock that only sleeping moves, and the sleep."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return (lambda: now[0]), sleep


def served(plan: Plan, begin: datetime = BEGIN, **options: Any) -> list[MetricSample]:
    clock, sleep = wall_clock()
    written = simulated_traffic.simulate_traffic(
        plan,
        options=simulated_traffic.TrafficOptions(**options),
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
    with pytest.raises(simulated_traffic.TrafficRefused, match="is reporting"):
        served(plan, duration_s=5)


@pytest.mark.parametrize("key", ["share", "speed", "duration_s"])
def test_options_out_of_range_are_refused(key: str) -> None:
    changed: dict[str, Any] = {key: 0.0}
    with pytest.raises(simulated_traffic.TrafficRefused, match=key):
        simulated_traffic.TrafficOptions(**changed)


@pytest.mark.django_db
def test_the_command_makes_a_demo_cluster_if_needed(
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
