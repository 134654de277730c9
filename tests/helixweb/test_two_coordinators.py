"""Two coordinators serve one cluster: both get its plan, both are counted, either may be silent."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from helixweb.access.scope import WHOLE_SITE
from helixweb.deployment.coordinators import change_of, coordinator_says, joint_report
from helixweb.deployment.models import Deployment, LatestReport, Status
from helixweb.deployment.services.losses import losses_of
from helixweb.deployment.settling import settle
from helixweb.inventory.models import Cluster, Coordinator
from helixweb.monitoring.chat_proxy import endpoints_of
from helixweb.monitoring.models import MetricSample
from runtime.protocol.control import CoordinatorReport, LinkStats, NodeTraffic
from tests.helixweb.looking import at_once, contains
from tests.helixweb.process_doubles import REPORT, FakeCoordinator, ServingCluster
from tests.helixweb.recorded import recorded

pytestmark = pytest.mark.usefixtures("time_stands_still")


class TwoFronts(ServingCluster):
    """`coordinator` and `second`, which has joined after the deployment was up."""

    def __init__(self, cluster: Cluster, user: Any) -> None:
        super().__init__(cluster, user)
        self.second = FakeCoordinator(cluster, user, port=7050, name="back")


@pytest.fixture
def fronts(cluster: Cluster, user: Any) -> TwoFronts:
    return recorded(lambda: TwoFronts(cluster, user))


def go_silent(front: FakeCoordinator) -> None:
    long_ago = timezone.now() - timedelta(minutes=1)
    Coordinator.unscoped.filter(pk=front.row.pk).update(last_seen_at=long_ago)


def report(**changes: Any) -> CoordinatorReport:
    return REPORT.model_copy(update={"output_tokens_total": 0, **changes})


def node(used: float, tokens: int, *, ready: bool) -> NodeTraffic:
    return NodeTraffic(
        kv_estimate_token_layers=used,
        kv_capacity_token_layers=1000.0,
        tokens_total=tokens,
        ready=ready,
    )


def test_one_that_joins_later_gets_the_plan_and_every_stage_hears_of_it(fronts: TwoFronts) -> None:
    assert fronts.deployment.generation == fronts.deployment.follows_generation + 1 == 2
    plans = [front.desired().plan for front in (fronts.coordinator, fronts.second)]
    assert plans[0] == plans[1] is not None
    for agent in fronts.used_agents.values():
        state = agent.desired()
        assert state.continues
        ends = {peer.name: peer.endpoint for peer in state.assignment.peers}
        assert ends["coordinator"] == "tcp://127.0.0.1:7000"
        assert ends["coordinator:2"] == "tcp://127.0.0.1:7050"


def test_the_change_is_over_when_all_that_can_be_heard_have_taken_over(fronts: TwoFronts) -> None:
    fronts.ready(generation=2)
    fronts.coordinator.report(generation=2, leaving_generation=1, leaving_requests=2)
    fronts.second.report(generation=2)
    told = change_of(fronts.deployment)
    assert told["leaving"] == 2
    fronts.second.report(generation=1)
    fronts.coordinator.report(generation=2)
    assert fronts.deployment.took_over_at is None, "the second serves what was before"
    fronts.second.report(generation=2)
    assert fronts.deployment.took_over_at is not None


def test_one_that_is_silent_holds_no_change_up(fronts: TwoFronts) -> None:
    fronts.ready(generation=2)
    fronts.second.report(generation=1)
    go_silent(fronts.second)
    fronts.coordinator.report(generation=2)
    assert fronts.deployment.took_over_at is not None


def test_numbers_add_up_and_survive_one_of_two(fronts: TwoFronts, browser: Client) -> None:
    traffic = {"mini": node(100.0, 50, ready=True)}
    edges = {"source->mini": 50}
    counts = {"ttft": (1, 2)}
    for front in (fronts.coordinator, fronts.second):
        front.report(
            generation=2,
            output_tokens_per_s=100.0,
            requests_running=3,
            requests_waiting=1,
            nodes=traffic,
            edge_tokens_total=edges,
            latency_counts=counts,
        )
    MetricSample.unscoped.all().delete()  # one a second is kept
    fronts.second.report(generation=2, output_tokens_per_s=60.0, requests_running=5)
    (sample,) = MetricSample.unscoped.all()
    assert (sample.output_tokens_per_s, sample.running, sample.waiting) == (160.0, 8, 1)
    MetricSample.unscoped.all().delete()
    go_silent(fronts.coordinator)
    fronts.second.report(generation=2, output_tokens_per_s=60.0, edge_tokens_total=edges)
    (sample,) = MetricSample.unscoped.all()
    assert (sample.output_tokens_per_s, sample.entered_tokens_total) == (60.0, 100)
    overview = browser.get("/")
    assert overview.context["view"]["numbers"]["output_tokens_per_s"] == 60.0


@pytest.mark.django_db(transaction=True)
def test_two_reports_at_once_both_count(fronts: TwoFronts, monkeypatch: pytest.MonkeyPatch) -> None:
    both, now = (fronts.coordinator, fronts.second), timezone.now()
    for number in range(1, 21):
        second = now + timedelta(seconds=number)
        monkeypatch.setattr(timezone, "now", lambda second=second: second)
        told = {"generation": 2, "output_tokens_total": number}
        at_once(*(partial(front.report, **told) for front in both))
        kept = LatestReport.unscoped.values_list("report__output_tokens_total", flat=True)
        assert list(kept) == [number, number]
        assert MetricSample.unscoped.filter(second=int(second.timestamp())).count() == 1


def test_pages_name_both_and_clients_ask_a_live_one(fronts: TwoFronts, browser: Client) -> None:
    page = browser.get(f"/deployments/{fronts.deployment.pk}/").content.decode()
    contains(page, "http://127.0.0.1:8100/v1", "http://127.0.0.1:8150/v1")
    assert losses_of(fronts.deployment, now=timezone.now()) == []
    go_silent(fronts.coordinator)
    assert ["front" in words for words in losses_of(fronts.deployment, now=timezone.now())] == [
        True
    ]
    (endpoint,) = endpoints_of(Deployment.light(WHOLE_SITE))
    assert endpoint.base_url == "http://127.0.0.1:8150/v1"
    cluster_page = browser.get(f"/clusters/{fronts.cluster.pk}/").content.decode()
    for front in (fronts.coordinator, fronts.second):
        assert f"/coordinators/{front.row.pk}/delete" in cluster_page


def test_one_is_removed_and_one_stays(fronts: TwoFronts, browser: Client, cluster: Cluster) -> None:
    path = f"/clusters/{cluster.pk}/coordinators/{fronts.coordinator.row.pk}/delete"
    assert browser.get(path).status_code == 200
    assert browser.post(path).status_code == 302
    assert [row.name for row in Coordinator.unscoped.all()] == ["back"]
    assert browser.get(path).status_code == 404


def test_what_each_says_is_told_with_its_name(fronts: TwoFronts) -> None:
    fronts.coordinator.report(generation=2, message="waits for mini")
    assert coordinator_says(fronts.deployment) == "waits for mini"
    fronts.second.report(generation=2, message="waits for maxi")
    assert coordinator_says(fronts.deployment) == "front: waits for mini; back: waits for maxi"


def test_what_one_could_not_read_counts_as_long_as_it_can_be_heard(fronts: TwoFronts) -> None:
    fronts.ready(generation=2)
    fronts.coordinator.report(generation=2)
    fronts.second.report(generation=2, refused_generation=2, message="no tokenizer")
    assert fronts.deployment.status == Status.FAILED
    assert "no tokenizer" in fronts.deployment.message
    go_silent(fronts.second)
    settle(fronts.deployment.pk, now=timezone.now())
    assert fronts.deployment.status == Status.READY


def test_counts_and_rates_add_up_and_tails_are_the_highest() -> None:
    both = joint_report(
        [
            report(
                generation=3,
                output_tokens_per_s=30.0,
                output_tokens_total=5,
                ttft_p50_s=1.0,
                ttft_p95_s=2.0,
                nodes={"a": node(10.0, 7, ready=False)},
                edge_tokens_total={"source->a": 7},
                latency_counts={"ttft": (1, 0)},
                links={"a": LinkStats(bulk_bytes_total=5)},
            ),
            report(
                generation=2,
                serving=False,
                output_tokens_per_s=10.0,
                output_tokens_total=6,
                ttft_p50_s=3.0,
                ttft_p95_s=4.0,
                coming_generation=3,
                coming_missing=("b",),
                nodes={"a": node(20.0, 8, ready=True), "b": node(1.0, 1, ready=True)},
                edge_tokens_total={"source->a": 1, "a->b": 2},
                latency_counts={"ttft": (1, 1, 5), "itl": (4,)},
                links={"a": LinkStats(bulk_bytes_total=50)},
            ),
        ],
        silent=[report(output_tokens_total=100, nodes={"a": node(9.0, 1000, ready=True)})],
    )
    assert (both.generation, both.serving, both.coming_generation) == (2, True, 3)
    assert (both.output_tokens_per_s, both.output_tokens_total) == (40.0, 111)
    assert (both.ttft_p50_s, both.ttft_p95_s, both.itl_p50_s) == (1.5, 4.0, None)
    assert both.coming_missing == ("b",)
    assert both.nodes["a"] == node(30.0, 1015, ready=True)
    assert both.edge_tokens_total == {"source->a": 8, "a->b": 2}
    assert both.latency_counts == {"ttft": (2, 1, 5), "itl": (4,)}
    assert both.links["a"].bulk_bytes_total == 50


def test_a_lone_report_is_told_as_it_is() -> None:
    alone = report(generation=4, ttft_p50_s=0.5)
    assert joint_report([alone]) is alone
    with pytest.raises(ValueError, match="no coordinator is heard"):
        joint_report([], silent=[alone])
