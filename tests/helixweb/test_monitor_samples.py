"""Reports become samples: rates between heartbeats, shares of flow, one a second, not for ever."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from helixweb.common.json_fields import member
from helixweb.common.models import Event
from helixweb.inventory.models import Cluster
from helixweb.monitoring import services
from helixweb.monitoring.history import points
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.node_samples import NodeSample, node_samples
from runtime.protocol.control import StageStats
from tests.helixweb.metric_samples import bare_sample
from tests.helixweb.process_doubles import HEARD, REPORT, STATS, FakeCluster

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def report(*, routed: dict[str, int] | None = None, entered: int = 0, **changes: Any) -> Any:
    traffic = {
        name: HEARD.model_copy(update={"tokens_total": tokens})
        for name, tokens in (routed or {}).items()
    }
    told = {"requests_waiting": 2, "ttft_p50_s": None, "nodes": traffic}
    told["edge_tokens_total"] = {"source->tower": entered, "tower->sink": 7}
    return REPORT.model_copy(update=told | changes)


def stats(**changes: Any) -> StageStats:
    return STATS.model_copy(update=changes)


def one_node(stage: StageStats | None, previous: NodeSample | None, *, second: int) -> NodeSample:
    return of_tower(
        report(routed={"tower": 0}),
        {"tower": stage} if stage else {},
        second=second,
        previous=MetricSample(nodes={"tower": previous.to_json()}) if previous else None,
    )


def of_tower(told: Any, stages: Any = None, **before: Any) -> NodeSample:
    known = {"second": 100, "previous": None, "reference": None, "silent_after_s": 10.0}
    return node_samples(told, stages or {}, **known | before)["tower"]


def test_the_first_counters_of_a_stage_give_gauges_but_no_rates() -> None:
    sample = one_node(STATS, None, second=100)
    assert (sample.kv_used_pages, sample.kv_total_pages, sample.sequences) == (25, 100, 1)
    assert sample.busy_ratio is None
    assert sample.tokens_per_s is None


def test_what_no_number_can_say_is_left_out() -> None:
    first = one_node(stats(uptime_s=0.0), None, second=100)
    sample = one_node(stats(uptime_s=1e-308, decode_tokens_total=2**50), first, second=101)
    assert sample.tokens_per_s is None
    full = report(
        nodes={
            "tower": HEARD.model_copy(
                update={"kv_estimate_token_layers": 1e300, "kv_capacity_token_layers": 1e-300}
            )
        }
    )
    assert of_tower(full).kv_promised_ratio is None


def test_rates_are_between_two_heartbeats_and_hold_until_the_next() -> None:
    first = one_node(
        stats(uptime_s=3.0, busy_s_total=0.5, prompt_tokens_total=64, decode_tokens_total=12),
        None,
        second=100,
    )
    later = stats(uptime_s=5.0, busy_s_total=2.0, prompt_tokens_total=70, decode_tokens_total=26)
    second = one_node(later, first, second=102)
    assert second.busy_ratio == pytest.approx(0.75)
    assert second.tokens_per_s == pytest.approx(10.0)
    between_heartbeats = one_node(later, second, second=103)
    assert between_heartbeats.busy_ratio == second.busy_ratio
    assert between_heartbeats.tokens_per_s == second.tokens_per_s


def test_a_stage_whose_counters_stand_still_for_long_is_not_known_any_more() -> None:
    first = one_node(stats(uptime_s=3.0), None, second=100)
    sample = one_node(stats(uptime_s=5.0), first, second=102)
    for second in range(103, 113):
        sample = one_node(stats(uptime_s=5.0), sample, second=second)
    assert sample.busy_ratio is not None
    sample = one_node(stats(uptime_s=5.0), sample, second=113)
    assert sample.busy_ratio is None
    assert sample.kv_total_pages is None
    assert one_node(stats(uptime_s=7.0), sample, second=114).kv_total_pages == 100


def test_a_stage_that_was_started_anew_has_no_rates_at_first() -> None:
    before = one_node(stats(uptime_s=50.0, busy_s_total=40.0), None, second=100)
    after = one_node(stats(uptime_s=1.0, busy_s_total=0.1), before, second=101)
    assert after.busy_ratio is None
    assert after.tokens_per_s is None


def test_a_node_without_a_stage_is_listed_as_unknown() -> None:
    assert one_node(None, None, second=100) == NodeSample(kv_promised_ratio=0.0)


@pytest.mark.parametrize(
    ("routed", "entered", "share"),
    [(130, 300, 0.15), (100, 300, 0.0), (100, 100, None), (5, 10, None)],
    ids=["a part passed", "none passed it", "nothing entered", "coordinator restarted"],
)
def test_the_flow_share_is_of_what_entered(routed: int, entered: int, share: float | None) -> None:
    nodes = {"tower": {"routed_tokens_total": 100}}
    sample = of_tower(
        report(routed={"tower": routed}, entered=entered),
        reference=MetricSample(entered_tokens_total=100, nodes=nodes),
    )
    assert sample.flow_share == (None if share is None else pytest.approx(share))


def keep(cluster: Cluster, at: datetime, **changes: Any) -> MetricSample | None:
    return services.record_sample(
        cluster_id=cluster.pk, report=report(**changes), node_stats={}, at=at
    )


def heard(cluster: Cluster, at: datetime, **changes: Any) -> None:
    """A report of a coordinator, of which pages are to hear, too."""
    services.keep_report(cluster_id=cluster.pk, report=report(**changes), node_stats={}, at=at)


def test_a_report_becomes_a_sample_and_a_frame(joined: FakeCluster, api: APIClient) -> None:
    joined.coordinator.report(output_tokens_per_s=42.0, ttft_p50_s=0.25)
    sample = MetricSample.unscoped.get()
    assert sample.output_tokens_per_s == 42.0
    frame = Event.objects.get(topic=f"metrics:{joined.cluster.pk}", type="metrics").data
    assert frame["output_tokens_per_s"] == 42.0
    assert frame["ttft_p50_s"] == 0.25
    assert api.get(f"/api/v1/metrics/latest/?cluster={joined.cluster.pk}").json()["nodes"] == {}


def test_at_most_one_sample_a_second_is_kept_and_pages_hear_of_it_once(cluster: Cluster) -> None:
    for milliseconds in (0, 900, -3000, 1000):
        heard(cluster, NOW + timedelta(milliseconds=milliseconds))
    seconds = [sample.at - NOW for sample in MetricSample.unscoped.all()]
    assert seconds == [timedelta(0), timedelta(seconds=1)]
    assert Event.objects.filter(type="metrics").count() == 2


def test_what_nodes_did_stays_with_one_sample_of_seconds_and_the_newest(cluster: Cluster) -> None:
    seconds = (1, 2, 3, 6, 7, 8, 17, 20, 22)
    for second in seconds:
        keep(cluster, NOW + timedelta(seconds=second), routed={"7": 10})
    rows = MetricSample.unscoped.order_by("second")
    passing = {2, 3}  # 7 and 8 are of the last 15 s
    assert [bool(row.nodes) for row in rows] == [second not in passing for second in seconds]
    assert [bool(row.edge_tokens_total) for row in rows] == [bool(row.nodes) for row in rows]
    said = rows.values_list(member("nodes", "7"), flat=True)
    assert [row and row["routed_tokens_total"] for row in said] == [
        None if second in passing else 10 for second in seconds
    ]
    keep(cluster, NOW + timedelta(seconds=25), routed={"7": 10})
    assert [row.second % 60 for row in rows.all() if not row.nodes] == [2, 3, 7, 8]
    services.prune_samples(NOW + timedelta(minutes=30))
    assert not any(row.nodes for row in rows.all())
    assert all(row.latency_totals == {} and row.output_tokens_per_s == 5.0 for row in rows.all())


def test_an_event_tells_of_nodes_in_a_table_of_as_many_digits_as_pages(cluster: Cluster) -> None:
    said = {"kv_used_pages": 7, "busy_ratio": 1 / 3, "uptime_s": 9.0}
    sample = bare_sample(cluster, NOW, output=1.0, nodes={"tower": said, "mini": {}})
    sample.save()
    services.announce(sample)
    table = Event.objects.get(type="metrics").data["nodes"]
    assert set(table["rows"]) == {"tower", "mini"}
    tower = dict(zip(table["fields"], table["rows"]["tower"], strict=True))
    assert tower == dict.fromkeys(table["fields"]) | {"kv_used_pages": 7, "busy_ratio": 0.3333}


def test_an_event_has_many_nodes_rarely(joined: FakeCluster, cluster: Cluster) -> None:
    joined.deploy()
    many = {f"node-{number}": 0 for number in range(services.MANY_NODES + 1)}
    for second in range(5):
        heard(cluster, NOW + timedelta(seconds=second), routed=many)
    told = [event.data for event in Event.objects.filter(type="metrics").order_by("pk")]
    assert [bool(event["nodes"]) for event in told] == [True, False, False, False, False]
    assert set(told[0]["nodes"]["rows"]) == set(many)


def test_shares_of_flow_are_taken_over_the_last_minute(cluster: Cluster) -> None:
    for second in range(0, 100, 2):
        at, entered = NOW + timedelta(seconds=second), 10 * second
        sample = keep(cluster, at, routed={"tower": entered // 2}, entered=entered)
    assert sample.nodes["tower"]["flow_share"] == pytest.approx(0.5)
    sample = keep(
        cluster, NOW + timedelta(seconds=100), routed={"tower": 495 + 400}, entered=990 + 400
    )
    assert sample.nodes["tower"]["flow_share"] == pytest.approx((895 - 200) / (1390 - 400))


def test_another_generation_begins_with_nothing_known(cluster: Cluster) -> None:
    keep(cluster, NOW, routed={"tower": 10}, entered=10)
    sample = keep(
        cluster, NOW + timedelta(seconds=1), routed={"tower": 20}, entered=20, generation=2
    )
    assert sample.nodes["tower"]["flow_share"] is None


def test_samples_are_thinned_after_an_hour_and_dropped_after_a_day(cluster: Cluster) -> None:
    for age in (0, 1, 2, 3600, 3601, 3605, 3610, 86_300, 86_401):
        MetricSample.objects.bulk_create(
            [bare_sample(cluster, NOW - timedelta(seconds=age), output=1.0)]
        )
    services.prune_samples(NOW)
    kept = {round((NOW - sample.at).total_seconds()) for sample in MetricSample.unscoped.all()}
    assert kept == {0, 1, 2, 3600, 3610, 86_300}


def test_points_are_means_but_the_highest_of_95th_percentiles(cluster: Cluster) -> None:
    MetricSample.objects.bulk_create(
        bare_sample(
            cluster,
            NOW + timedelta(seconds=second),
            output=float(second),
            ttft_p50_s=None if second < 2 else 1.0,
            ttft_p95_s=float(second),
        )
        for second in range(8)
    )
    first, second = points(cluster, since=NOW, until=NOW + timedelta(seconds=7), step_s=4)
    assert (first.at, second.at) == (NOW, NOW + timedelta(seconds=4))
    assert first["output_tokens_per_s"] == pytest.approx(1.5)
    assert first["ttft_p50_s"] == pytest.approx(1.0)
    assert first["ttft_p95_s"] == 3.0
    assert second["running"] == 1.0
    assert second["itl_p50_s"] is None


def test_a_line_breaks_where_nothing_was_reported(cluster: Cluster) -> None:
    MetricSample.objects.bulk_create(
        bare_sample(cluster, NOW + timedelta(seconds=second), output=1.0)
        for second in (0, 1, 2, 30, 31)
    )
    found = points(cluster, since=NOW, until=NOW + timedelta(seconds=33), step_s=1)
    assert [point["output_tokens_per_s"] for point in found] == [1.0, 1.0, 1.0, None, 1.0, 1.0]
    assert NOW + timedelta(seconds=2) < found[3].at < NOW + timedelta(seconds=30)
    until = NOW + timedelta(seconds=60)
    last = points(cluster, since=NOW, until=until, step_s=1)[-1]
    assert (last.at, last.values) == (until, None)
