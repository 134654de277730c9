"""Routing weights follow what links do, say so, and go back; no stage hears of it."""

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F, QuerySet
from django.test import Client
from rest_framework.test import APIClient

from helixweb.common.models import Event
from helixweb.deployment import links, tasks
from helixweb.deployment.models import Deployment, Status
from helixweb.inventory.models import Change, Coordinator, Link
from helixweb.monitoring.models import MetricSample
from planner.reweigh import reweigh
from planner.serialization import plan_from_dict, problem_from_dict
from runtime.protocol.control import LinkStats
from runtime.protocol.phases import Phase
from tests.helixweb.looking import contains, shows
from tests.helixweb.process_doubles import STATS, FakeCluster, FakeCoordinator
from tests.helixweb.recorded import recorded

pytestmark = pytest.mark.usefixtures("time_stands_still")

PLANNED = 1.25e9
SLOW = 2000.0  # bytes/s: some 8 tokens/s


class Serving:
    """A deployment whose nodes are ready, and what its plan says of a link that is used."""

    def __init__(self, joined: FakeCluster, user: Any) -> None:
        self.joined = joined
        self.deployment = joined.deploy()
        self.plan = plan_from_dict(joined.plan.document)
        self.problem = problem_from_dict(joined.plan.problem)
        self.ends = next(
            (edge.source, edge.target)
            for edge in self.plan.flow.edges
            if edge.flow_tokens_per_s > 0
            and edge.source in self.joined.agents
            and edge.target in self.joined.agents
        )
        self.tell(None)
        assert Deployment.unscoped.get(pk=self.deployment.pk).status == Status.READY

    def tell(self, stats: LinkStats | None, *, uptime_s: float = STATS.uptime_s) -> None:
        """Every node reports, the source of the link with `stats` of it."""
        source, target = self.ends
        for name, agent in self.joined.used_agents.items():
            told = {target: stats} if name == source and stats else {}
            changes = {"links": told, "uptime_s": uptime_s}
            stage = STATS.model_copy(update=changes).model_dump(mode="json")
            agent.beat(Phase.READY, generation=self.deployment.generation, stage=stage)
        tasks.tend_deployments()

    @property
    def links(self) -> QuerySet[Link]:
        """The one row of the link that is used."""
        source, target = self.ends
        return Link.unscoped.filter(cluster=self.deployment.cluster, source=source, target=target)

    def know(self, origin: str, *, latency_s: float = 0.0) -> None:
        """The site knows of the link that it does 1 GB/s."""
        values = {"origin": origin, "bandwidth_bytes_per_s": 1e9, "latency_s": latency_s}
        source, target = self.ends
        Link.unscoped.update_or_create(
            cluster=self.deployment.cluster, source=source, target=target, defaults=values
        )

    @property
    def weights(self) -> Any:
        served = self.joined.coordinator.plan
        return served.routing_weights


@pytest.fixture
def serving(joined: FakeCluster, user: Any, time_stands_still: Any) -> Serving:
    return recorded(lambda: Serving(joined, user))


def slow(rate: float = SLOW, *, age_s: float = 0.5) -> LinkStats:
    return LinkStats(
        bandwidth_bytes_per_s=rate, bandwidth_age_s=age_s, bandwidth_is_floor=False, rtt_s=0.01
    )


def texts() -> list[str]:
    events = Event.objects.filter(type="deployment").order_by("pk")
    return [event.data["text"] for event in events if "text" in event.data]


def test_weights_follow_a_slow_link_say_so_and_go_back_with_it(serving: Serving) -> None:
    planned = serving.weights
    generation = serving.deployment.generation
    wakes = Event.objects.filter(type="desired", topic__startswith="agent").count()
    serving.tell(slow())
    expected = reweigh(serving.problem, serving.plan, {serving.ends: SLOW})
    assert serving.weights == expected.routing_weights
    assert serving.weights != planned
    source, target = serving.ends
    contains(texts()[-1], f"{source} → {target}: 0.016 Mb/s", "another placement may do more")
    serving.tell(slow(1.05 * SLOW))  # no news
    assert serving.weights == expected.routing_weights
    serving.tell(slow(PLANNED))
    assert serving.weights == planned
    assert "by the plan's weights" in texts()[-1]
    assert Event.objects.filter(type="desired", topic__startswith="agent").count() == wakes
    assert serving.joined.coordinator.desired().generation == generation


def test_a_person_may_hold_the_plans_weights_and_let_go(serving: Serving, api: APIClient) -> None:
    planned = serving.weights
    address = f"/api/v1/deployments/{serving.deployment.pk}/weights/"
    assert api.post(address, {"held": True}).status_code == 200
    serving.tell(slow())
    assert serving.weights == planned
    assert api.post(address, {"held": False}).status_code == 200
    assert serving.weights != planned
    assert api.post(address, {}).status_code == 400


def test_the_api_tells_what_links_do_and_the_weights(serving: Serving, api: APIClient) -> None:
    path = f"/api/v1/deployments/{serving.deployment.pk}/links/"
    assert api.get(path).json() == {"links": [], "weights": None}
    serving.tell(slow())
    told = api.get(path).json()
    (link,) = told["links"]
    assert (link["source"], link["target"]) == serving.ends
    assert (link["planned_bytes_per_s"], link["measured_bytes_per_s"]) == (PLANNED, SLOW)
    assert (link["slow"], link["is_floor"]) == (True, False)
    assert told["weights"]["routing_weights"] == serving.weights
    assert told["weights"]["rates"] == {"->".join(serving.ends): SLOW}
    assert told["weights"]["counts"] is True
    assert api.get("/api/v1/deployments/999999/links/").status_code == 404


def test_the_coordinators_report_tells_of_its_own_links(serving: Serving, api: APIClient) -> None:
    name = next(iter(serving.joined.used_agents))
    serving.joined.coordinator.report(
        generation=serving.deployment.generation, links={name: slow(5e6)}
    )
    deployment = Deployment.unscoped.get(pk=serving.deployment.pk)
    (link,) = links.live_links(deployment, now=deployment.created_at)
    assert link.ends == ("coordinator", name)
    assert link.stats.bandwidth_bytes_per_s == 5e6


def link_of(stats: LinkStats, *, age_s: float = 0.0) -> links.LiveLink:
    return links.LiveLink(
        source="a", target="b", stats=stats, age_s=age_s, planned_bytes_per_s=100.0
    )


def test_a_rate_counts_if_it_was_seen_lately_on_a_full_link_or_is_more_than_planned() -> None:
    def counted(known: float | None = None, **stats: Any) -> float:
        return links.counted_rate(link_of(LinkStats(**stats)), 100.0, known=known)

    fresh = {"bandwidth_age_s": 1.0, "bandwidth_is_floor": False}
    assert counted() == 100.0
    assert counted(bandwidth_bytes_per_s=40.0, **fresh) == 40.0
    assert counted(bandwidth_bytes_per_s=40.0, bandwidth_age_s=1.0) == 100.0  # only a floor
    assert counted(bandwidth_bytes_per_s=400.0, bandwidth_age_s=1.0) == 400.0
    old = {"bandwidth_age_s": 100.0, "bandwidth_is_floor": False}
    assert counted(bandwidth_bytes_per_s=40.0, **old) == 100.0
    assert counted(30.0, bandwidth_bytes_per_s=40.0, **old) == 30.0
    older = {"bandwidth_age_s": links.FORGOTTEN_AFTER_S + 1, "bandwidth_is_floor": False}
    assert counted(30.0, bandwidth_bytes_per_s=40.0, **older) == 100.0


def test_a_link_at_the_edge_of_what_is_news_does_not_come_and_go() -> None:
    def counted(rate: float, known: float | None = None) -> list[float]:
        before = {} if known is None else {("a", "b"): known}
        return list(links.counted_rates([link_of(slow(rate))], known=before).values())

    assert counted(81.0) == []
    assert counted(79.0) == [79.0]
    assert counted(81.0, known=79.0) == [81.0]
    assert counted(95.0, known=79.0) == []


def test_what_a_node_told_before_it_fell_silent_grows_old(serving: Serving) -> None:
    """Its last report says that the link was measured just then."""

    def counted(age_s: float) -> dict[tuple[str, str], float]:
        return links.counted_rates([link_of(slow(40.0), age_s=age_s)], known={("a", "b"): 45.0})

    assert counted(1.0) == {("a", "b"): 40.0}
    assert counted(links.STALE_AFTER_S) == {("a", "b"): 45.0}
    assert counted(links.FORGOTTEN_AFTER_S) == {}


def test_links_of_a_silent_coordinator_do_not_count(serving: Serving, user: Any) -> None:
    name = next(iter(serving.joined.used_agents))
    gone = FakeCoordinator(serving.joined.cluster, user, port=7050, name="back")
    deployment = Deployment.unscoped.get(pk=serving.deployment.pk)
    for front, rate, sent_bytes in ((gone, 3e6, 10**12), (serving.joined.coordinator, 5e6, 10)):
        stats = slow(rate).model_copy(update={"urgent_bytes_total": sent_bytes})
        front.report(generation=deployment.generation, links={name: stats})

    def told() -> float | None:
        read = Deployment.unscoped.get(pk=deployment.pk)
        (link,) = links.live_links(read, now=deployment.created_at)
        return link.stats.bandwidth_bytes_per_s

    assert told() == 3e6, "most is sent over it"
    long_ago = deployment.created_at - timedelta(minutes=1)
    Coordinator.unscoped.filter(name="back").update(last_seen_at=long_ago)
    assert told() == 5e6


def test_held_weights_outlast_a_process_that_moves(serving: Serving, user: Any) -> None:
    links.hold_weights(serving.deployment, held=True, user=user, now=serving.deployment.created_at)
    agent = serving.joined.agents[serving.ends[0]]
    agent.move("tcp://127.0.0.1:7999")
    serving.deployment.refresh_from_db()
    assert serving.deployment.generation == 2
    planned, said = serving.weights, texts()
    serving.tell(slow())
    assert serving.weights == planned
    assert not [text for text in texts()[len(said) :] if "routed by that" in text]


def test_the_networks_page_names_a_slow_link_and_queues(serving: Serving, browser: Client) -> None:
    url = f"/clusters/{serving.deployment.cluster_id}/network/"
    assert "Links at work" not in browser.get(url).content.decode()
    serving.tell(
        slow(SLOW, age_s=3.0).model_copy(
            update={"waiting_bytes": 500_000, "bulk_bytes_per_s": 250.0, "queueing_s": 0.2}
        )
    )
    page = browser.get(url).content.decode()
    source, target = serving.ends
    assert f"{source} → {target} is slow: it does 16 kbit/s, the plan counts on 10 Gbit/s." in page
    contains(page, "500 kB", "2 kbit/s", "200 ms", "3 s", "No layer was moved")
    browser.post(f"/deployments/{serving.deployment.pk}/weights", {"held": "1"})
    assert "even if links are slow" in browser.get(url).content.decode()
    serving.tell(slow().model_copy(update={"stalled": True}))
    assert f"{source} → {target} takes no prompts" in browser.get(url).content.decode()


def test_the_monitor_names_a_link_while_it_is_slow(serving: Serving, api: APIClient) -> None:
    def limits(stats: LinkStats, *, uptime_s: float) -> Any:
        for later_s in (0.0, 2.0):
            MetricSample.unscoped.update(second=F("second") - 2, at=F("at") - timedelta(seconds=2))
            serving.tell(stats, uptime_s=uptime_s + later_s)
            serving.joined.coordinator.report(generation=serving.deployment.generation)
        return api.get(f"/api/v1/clusters/{serving.deployment.cluster_id}/bottleneck/").json()

    found = limits(slow(), uptime_s=10.0)
    source, target = serving.ends
    assert (found["limit"], found["subject"]) == ("link", f"{source} → {target}")
    assert "it does 16 kbit/s, the plan counts on 10 Gbit/s" in found["headline"]
    assert "tokens/s that the plan sends over it" in found["evidence"]
    assert "routed by what it does now" in found["advice"]
    assert limits(slow(PLANNED), uptime_s=20.0)["limit"] == "nothing"


def test_measured_rates_become_links(serving: Serving, browser: Client, api: APIClient) -> None:
    cluster = serving.deployment.cluster
    url = f"/clusters/{cluster.pk}/network/keep-measured"
    browser.post(url)
    assert not Link.unscoped.filter(cluster=cluster, origin="measured").exists()
    serving.tell(slow())
    browser.post(url)
    (link,) = Link.unscoped.filter(cluster=cluster, origin="measured")
    assert (link.source, link.target) == serving.ends
    assert link.bandwidth_bytes_per_s == SLOW
    shows(browser.get(f"/changes/?cluster={cluster.pk}&kind=link"), serving.ends[0])
    link.delete()
    assert api.post(f"/api/v1/clusters/{cluster.pk}/keep-measured-links/").json() == {"kept": 1}
    assert Link.unscoped.filter(cluster=cluster, bandwidth_bytes_per_s=SLOW).exists()


def measured_only(rate: float = 5e6, **changes: Any) -> LinkStats:
    """Of a link that nothing but the measurement was sent over."""
    stats = LinkStats(
        bandwidth_bytes_per_s=rate,
        bandwidth_age_s=1.0,
        bandwidth_is_floor=False,
        rtt_s=0.06,
        filler_bytes_total=2_000_000,
    )
    return stats.model_copy(update=changes)


def test_an_idle_link_is_measured_and_shown_with_its_age(serving: Serving, browser: Client) -> None:
    cluster = serving.deployment.cluster
    Link.unscoped.filter(cluster=cluster).update(origin="estimated")
    planned = serving.weights
    serving.tell(measured_only())
    source, target = serving.ends
    link = serving.links.get()
    assert (link.bandwidth_bytes_per_s, link.latency_s, link.origin) == (5e6, 0.03, "measured")
    page = browser.get(f"/clusters/{cluster.pk}/network/").content.decode()
    assert "measured, 0 s old" in page
    assert f"{source} → {target} is slow" not in page  # nothing is at work there
    assert serving.weights == planned
    written_at = link.recorded_at
    serving.tell(measured_only(4e6))  # the same again: a heartbeat repeats what it knows
    link.refresh_from_db()
    assert (link.bandwidth_bytes_per_s, link.recorded_at) == (5e6, written_at)


def test_a_changed_measurement_is_logged_and_a_confirmed_one_is_not(
    serving: Serving,
) -> None:
    source, target = serving.ends
    lines = Change.unscoped.filter(kind="link", name=f"{source} -> {target}", action="changed")
    serving.know("estimated", latency_s=0.5)
    known = serving.links
    Event.objects.all().delete()
    serving.tell(measured_only())
    (line,) = lines
    assert (line.before["bandwidth_bytes_per_s"], line.before["origin"]) == (1e9, "estimated")
    assert (line.after["bandwidth_bytes_per_s"], line.after["origin"]) == (5e6, "measured")
    assert line.actor_kind == "site"
    topic = f"cluster:{serving.deployment.cluster_id}"
    assert Event.objects.filter(topic=topic).exists(), "open pages hear of it"
    for rate, stays, count in ((5.2e6, 5e6, 1), (2e6, 2e6, 2)):
        known.update(recorded_at=known[0].recorded_at - timedelta(minutes=1))
        serving.tell(measured_only(rate))
        assert (lines.all().count(), known[0].bandwidth_bytes_per_s) == (count, stays)


def test_measurements_spare_what_people_imported_and_floors_lower_nothing(serving: Serving) -> None:
    serving.know("imported")
    serving.tell(measured_only())
    assert serving.links.get().bandwidth_bytes_per_s == 1e9
    serving.links.update(origin="estimated")
    serving.tell(measured_only(bandwidth_is_floor=True))
    link = serving.links.get()
    assert (link.bandwidth_bytes_per_s, link.origin) == (1e9, "measured")


@pytest.mark.parametrize(
    "changes",
    [{"bandwidth_age_s": 500.0}, {"urgent_bytes_total": 9}, {"bandwidth_bytes_per_s": None}],
)
def test_unusable_measurements_are_not_stored(serving: Serving, changes: dict[str, Any]) -> None:
    Link.unscoped.filter(cluster=serving.deployment.cluster).update(origin="estimated")
    serving.tell(measured_only(**changes))
    assert not Link.unscoped.filter(origin="measured").exists()
