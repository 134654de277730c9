"""Processes try each other's data ports; who does not reach whom is said before and after."""

import itertools
import re
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.common.models import Event
from helixweb.inventory.link_sampling import Member, orders
from helixweb.inventory.models import Change, Node
from helixweb.inventory.services.reachability import parties, reach_matrix
from helixweb.operations.doctor import members
from helixweb.operations.doctor.findings import State
from planner.domain.cluster import COORDINATOR
from runtime import web_client
from runtime.protocol.control import HeartbeatReply
from runtime.protocol.reach import MeasuredLink, MeasuredRate, Reach, digest_of
from tests.helixweb.looking import answered, tight
from tests.helixweb.process_doubles import REPORT, FakeCluster, FakeProcess
from tests.helixweb.recorded import recorded
from tests.helixweb.site_in_process import Shell

PLACES = {"laptop": "10.0.0.2:7001", "tower": "10.0.0.3:7001", "mini": "10.0.0.4:7001"}
CUT = (
    "tower cannot reach laptop at 10.0.0.2:7001: allow this TCP port through the firewall; if "
    "laptop is behind NAT, forward a port to it and restart it with --advertise"
)


@pytest.fixture
def joined(joined: FakeCluster) -> FakeCluster:
    return recorded(lambda: moved(joined))


def moved(joined: FakeCluster) -> FakeCluster:
    joined.coordinator.move("tcp://10.0.0.1:7000")
    for name, agent in joined.agents.items():
        agent.move(f"tcp://{PLACES[name]}")
    return joined


def replied(process: FakeProcess, reach: Reach | None) -> HeartbeatReply:
    """What it is told when it reports that."""
    said: dict[str, Any] = {"observed": {"generation": 0, "phase": "idle"}}
    if reach is not None:
        said["reach"] = reach.model_dump(mode="json")
    answer = answered(process.http.post("/api/v1/agent/heartbeat", said), 200)
    return HeartbeatReply.model_validate_json(answer.content)


def to_reach(process: FakeProcess, reach: Reach | None) -> list[str] | None:
    """What it is told to try when it reports that."""
    found = replied(process, reach).to_reach
    return None if found is None else list(found)


def report(joined: FakeCluster, name: str, *unreached: str) -> None:
    """It has tried all, and cannot reach the data ports of these."""
    endpoints = to_reach(joined.agents[name], Reach()) or []
    failing = {f"tcp://{PLACES[other]}": "no answer within 2 s" for other in unreached}
    reach = Reach(tried=digest_of(endpoints), failing=failing)
    assert to_reach(joined.agents[name], reach) is None, "it knows them now"


def test_each_process_is_told_to_try_the_others(joined: FakeCluster) -> None:
    laptop, tower, mini = (f"tcp://{PLACES[name]}" for name in ("laptop", "tower", "mini"))
    found = to_reach(joined.agents["tower"], Reach())
    assert found is not None
    assert sorted(found) == ["tcp://10.0.0.1:7000", laptop, mini]
    assert to_reach(joined.agents["tower"], None) is None, "of an earlier release"
    said = REPORT.model_copy(update={"reach": Reach()}).model_dump(mode="json")
    reply = answered(joined.coordinator.http.post("/api/v1/coordinator/report", said), 200).json()
    assert sorted(reply["to_reach"]) == sorted([laptop, tower, mini])
    joined.silence("mini")
    cache.clear()  # some seconds later
    assert mini not in (to_reach(joined.agents["tower"], Reach()) or [])
    newer = {"observed": {"generation": 0, "phase": "idle"}, "reach": {"colour": 1}}
    answer = joined.agents["tower"].http.post("/api/v1/agent/heartbeat", newer)
    assert answer.json()["errors"][0]["field"] == "reach.colour", "an agent leaves that out then"
    assert answer.json()["errors"][0]["message"].startswith(web_client.EXTRA)
    joined.coordinator.report(reach=Reach(tried="x", failing={tower: "no route"}))
    assert joined.coordinator.row.reach["failing"] == {tower: "no route"}


def test_no_plan_is_deployed_to_parties_out_of_reach(joined: FakeCluster, api: APIClient) -> None:
    ask = {"plan": joined.plan.pk}
    for name in joined.agents:
        report(joined, name)
    report(joined, "tower", "laptop")
    answer = api.post("/api/v1/deployments/", ask)
    assert (answer.status_code, CUT in answer.json()["detail"]) == (409, True)
    assert Event.objects.latest("pk").data["text"] == CUT
    joined.agents["laptop"].move("tcp://127.0.0.1:7001")
    cache.clear()  # some seconds later
    now = {"tcp://127.0.0.1:7001": "loopback leads to this process itself"}
    to_reach(joined.agents["tower"], Reach(tried="x", failing=now))
    answer = api.post("/api/v1/deployments/", ask)
    assert "restart laptop with --data-host" in answer.json()["detail"]
    joined.coordinator.report(
        reach=Reach(tried="x", failing={f"tcp://{PLACES['tower']}": "no answer within 2 s"})
    )
    report(joined, "tower")
    assert (
        "front cannot reach tower at 10.0.0.3:7001"
        in api.post("/api/v1/deployments/", ask).json()["detail"]
    )
    joined.coordinator.report(reach=Reach(tried="x"))
    assert Event.objects.latest("pk").data["text"] == "front reaches tower at 10.0.0.3:7001."
    assert api.post("/api/v1/deployments/", ask).status_code == 202
    assert not Change.unscoped.filter(after__has_key="reach").exists()


def test_a_process_that_stops_reporting_blocks_no_plan(joined: FakeCluster, api: APIClient) -> None:
    for name in joined.agents:
        report(joined, name)
    report(joined, "tower", "laptop")
    to_reach(joined.agents["tower"], None)  # another release of the agent was installed
    assert api.get(f"/api/v1/clusters/{joined.cluster.pk}/reach/").json()["cut"] == []
    joined.coordinator.report(reach=Reach(tried="x"))
    assert api.post("/api/v1/deployments/", {"plan": joined.plan.pk}).status_code == 202


def test_a_closed_port_is_a_fault_if_its_process_listens(
    joined: FakeCluster, api: APIClient
) -> None:
    def cells() -> dict[tuple[str, str], str]:
        view = reach_matrix(parties(joined.cluster.pk, now=timezone.now()))
        return {
            (row["name"], name): cell
            for row in view["rows"]
            for name, cell in zip(view["names"], row["cells"], strict=True)
        }

    assert cells()["tower", "laptop"] == "untried"
    for name in joined.agents:
        report(joined, name)
    laptop = f"tcp://{PLACES['laptop']}"
    to_reach(joined.agents["tower"], Reach(tried="x", refused=(laptop,)))
    assert cells()["tower", "laptop"] == "closed", "its stage starts"
    assert cells()["laptop", "tower"] == "ok"
    assert api.get(f"/api/v1/clusters/{joined.cluster.pk}/reach/").json()["cut"] == []
    to_reach(joined.agents["laptop"], Reach(tried="x", listens=True))
    assert cells()["tower", "laptop"] == "cut"
    answer = api.post("/api/v1/deployments/", {"plan": joined.plan.pk})
    assert "tower is refused at 10.0.0.2:7001, where laptop listens" in answer.json()["detail"]


WEIGHTS_PORT = 7100
CUT_WEIGHTS = (
    "tower cannot fetch weights from laptop at 10.0.0.2:7100 and takes them from other nodes, the "
    "site or the hub: allow this TCP port through the firewall (behind NAT, forward it under the "
    "same number), or restart laptop with --weights-port and an open port"
)


def test_a_closed_weights_port_is_a_warning_everywhere_and_refuses_no_plan(
    joined: FakeCluster, api: APIClient, browser: Client, shell: Shell
) -> None:
    serving = Reach(tried="x", weights_port=WEIGHTS_PORT)
    for name in joined.agents:
        to_reach(joined.agents[name], serving)
    cache.clear()  # some seconds later
    asked = to_reach(joined.agents["tower"], serving.model_copy(update={"tried": ""})) or []
    weights = [one for one in asked if one.endswith(f":{WEIGHTS_PORT}")]
    assert sorted(weights) == ["tcp://10.0.0.2:7100", "tcp://10.0.0.4:7100"]
    joined.coordinator.report(reach=Reach(tried="x"))
    assert "weights_cut" in api.get(f"/api/v1/clusters/{joined.cluster.pk}/reach/").json()
    failing = {"tcp://10.0.0.2:7100": "no answer within 2 s"}
    to_reach(joined.agents["tower"], serving.model_copy(update={"failing": failing}))
    told = api.get(f"/api/v1/clusters/{joined.cluster.pk}/reach/").json()
    (cut,) = told["weights_cut"]
    assert (told["cut"], cut["endpoint"], cut["remedy"]) == (
        [], "tcp://10.0.0.2:7100", CUT_WEIGHTS,
    )  # fmt: skip
    page = browser.get(f"/clusters/{joined.cluster.pk}/").content.decode()
    assert CUT_WEIGHTS in page
    assert "All 4 processes reach each other" in page, "their data ports"
    (finding,) = members.links(timezone.now())
    assert (finding.state, CUT_WEIGHTS in finding.said) == (State.WARNING, True)
    assert shell("status") == 0
    assert CUT_WEIGHTS in shell.out
    assert api.post("/api/v1/deployments/", {"plan": joined.plan.pk}).status_code == 202
    refused = serving.model_copy(update={"refused": ("tcp://10.0.0.2:7100",)})
    to_reach(joined.agents["tower"], refused)
    told = api.get(f"/api/v1/clusters/{joined.cluster.pk}/reach/").json()
    assert [one["why"] for one in told["weights_cut"]] == ["connection refused"]
    to_reach(joined.agents["tower"], serving)
    told = api.get(f"/api/v1/clusters/{joined.cluster.pk}/reach/").json()
    assert (told["cut"], told["weights_cut"]) == ([], [])


IDLE = Reach(tried="x", listens=True, measures=True)
MEASURED = MeasuredLink(
    rtt_s=0.004, sent=MeasuredRate(bytes_per_s=1e8), received=MeasuredRate(bytes_per_s=5e7)
)


def some_seconds_later() -> None:
    cache.clear()
    Node.unscoped.update(last_seen_at=timezone.now() - timedelta(seconds=5))


def measured_by(joined: FakeCluster, *, busy: str = "") -> list[tuple[str, str]]:
    """Which pairs are measured until no process is asked for more."""
    names = {f"tcp://{place}": name for name, place in PLACES.items()}
    busy_reach = IDLE.model_copy(update={"measures": False})
    for name, agent in joined.agents.items():
        replied(agent, busy_reach if name == busy else IDLE)
    found = []
    for name, agent in joined.agents.items():
        some_seconds_later()
        order = replied(agent, IDLE).to_measure if name != busy else None
        for endpoint in () if order is None else order.endpoints:
            found.append((name, names[endpoint]))
            reach = IDLE.model_copy(update={"measured": {endpoint: MEASURED}})
            again = replied(agent, reach).to_measure
            assert endpoint not in again.endpoints
    return found


def test_links_of_machines_are_measured(
    joined: FakeCluster, api: APIClient, browser: Client
) -> None:
    cluster = joined.cluster
    assert measured_by(joined) == [], "a file said what its regions do"
    cluster.links.all().delete()
    cluster.region_links.all().delete()
    node = joined.agents["tower"].row
    ((source, target),) = measured_by(joined, busy="laptop")
    assert {source, target} == {"tower", "mini"}, "laptop serves"
    cluster.links.all().delete()
    stated = {"cluster": cluster.pk, "source": "mini", "target": "tower",
              "bandwidth_bytes_per_s": 7e6, "latency_s": 0.1}  # fmt: skip
    assert api.post("/api/v1/links/", stated).status_code == 201
    pairs = measured_by(joined)
    assert {frozenset(pair) for pair in pairs} == {
        frozenset(pair) for pair in itertools.combinations(PLACES, 2)
    }
    assert len(pairs) == 3, "each pair once"
    rows = {(row.source, row.target): row for row in cluster.links.all()}
    assert len(rows) == 6
    assert (rows["mini", "tower"].bandwidth_bytes_per_s, rows["mini", "tower"].origin) == (
        7e6, "entered",
    )  # fmt: skip
    (source, target) = next(pair for pair in pairs if set(pair) == {"laptop", "tower"})
    there, back = rows[source, target], rows[target, source]
    assert (there.bandwidth_bytes_per_s, there.latency_s) == (1e8, 0.002)
    assert (back.bandwidth_bytes_per_s, back.origin) == (5e7, "measured")
    regions = cluster.region_links.get(source=node.region, target=node.region)
    assert (regions.origin, 5e7 <= regions.bandwidth_bytes_per_s <= 1e8) == ("measured", True)
    page = tight(browser.get(f"/clusters/{cluster.pk}/network/").content.decode())
    assert page.count(">entered</span>") == 1
    assert measured_by(joined) == []
    there.delete()
    assert measured_by(joined) == [(source, target)], "what is deleted is measured again"
    region_of = dict(cluster.nodes.values_list("name", "region"))
    entered = {"cluster": cluster.pk, "bandwidth_bytes_per_s": 3e6, "latency_s": 0.1}
    row = cluster.region_links.get(source=region_of[source], target=region_of[target])
    assert api.patch(f"/api/v1/region-links/{row.pk}/", entered).status_code == 200
    between = {(one, other) for one in region_of for other in region_of if one != other
               and (region_of[one], region_of[other]) == (row.source, row.target)}  # fmt: skip
    measured = set(cluster.links.filter(origin="measured").values_list("source", "target"))
    assert between
    assert not between & measured, "what a person says of two regions counts for all their pairs"
    measured_by(joined)
    links = cluster.links.filter(origin="measured").values_list("source", "target")
    assert not between & set(links)


def test_links_of_a_node_that_only_dials_out_are_measured_from_it(joined: FakeCluster) -> None:
    cluster = joined.cluster
    cluster.links.all().delete()
    cluster.region_links.all().delete()
    mini = f"tcp://{PLACES['mini']}"
    behind_nat = IDLE.model_copy(update={"failing": {mini: "no answer within 2 s"}})
    joined.coordinator.report(reach=behind_nat.model_copy(update={"answers": True}))
    for name, agent in joined.agents.items():
        replied(agent, IDLE if name == "mini" else behind_nat)
    some_seconds_later()
    order = replied(joined.agents["mini"], IDLE).to_measure
    others = ["tcp://10.0.0.1:7000", *(f"tcp://{PLACES[name]}" for name in ("laptop", "tower"))]
    assert sorted(order.endpoints) == sorted(others)
    found = IDLE.model_copy(update={"measured": dict.fromkeys(others, MEASURED)})
    assert (replied(joined.agents["mini"], found).to_measure or order).endpoints == ()
    rows = {(row.source, row.target): row.bandwidth_bytes_per_s for row in cluster.links.all()}
    assert (rows["mini", COORDINATOR], rows[COORDINATOR, "mini"]) == (1e8, 5e7)
    assert len(rows) == 6


def test_of_a_large_cluster_some_pairs_of_all_regions_are_measured() -> None:
    members = [
        Member(
            name=f"n{number}",
            is_coordinator=number == 0,
            region=f"r{number % 4}",
            endpoint=f"tcp://10.0.0.{number + 1}:7000",
            heard=True,
            joined_at=timezone.now(),
            reach=IDLE,
        )
        for number in range(101)
    ]
    asked = orders(members, is_known=lambda source, target: False)
    by_endpoint = {one.endpoint: one for one in members}
    pairs = [
        (by_endpoint[source], by_endpoint[target])
        for source, targets in asked.items()
        for target in targets
    ]
    parts = Counter(one.name for pair in pairs for one in pair)
    assert len(parts) == len(members)
    assert max(parts.values()) <= 12, "seconds that one machine takes part, two at most for each"
    assert {frozenset((one.region, other.region)) for one, other in pairs} == {
        frozenset(pair) for pair in itertools.combinations_with_replacement(
            ("r0", "r1", "r2", "r3"), 2
        )
    }  # fmt: skip


def test_page_rest_status_and_doctor_say_the_same_sentence(
    joined: FakeCluster, api: APIClient, browser: Client, shell: Shell
) -> None:
    pk = joined.cluster.pk

    def page() -> str:
        return browser.get(f"/clusters/{pk}/").content.decode()

    assert "Not tried yet by: front, " in page()
    joined.coordinator.report(reach=Reach(tried="x"))
    for name in joined.agents:
        report(joined, name)
    assert "All 4 processes reach each other" in page()
    assert api.get(f"/api/v1/clusters/{pk}/reach/").json() == {
        "processes": 4, "untried": [], "cut": [], "weights_cut": [],
    }  # fmt: skip
    assert list(members.links(timezone.now())) == []
    report(joined, "tower", "laptop")
    assert CUT in page()
    assert len(re.findall(r'<span class="badge bad">no</span>', page())) == 1
    (cut,) = api.get(f"/api/v1/clusters/{pk}/reach/").json()["cut"]
    assert (cut["remedy"], cut["why"]) == (CUT, "no answer within 2 s")
    (finding,) = members.links(timezone.now())
    assert finding.state is State.FAILED
    assert CUT in finding.said
    assert shell("status") == 0
    assert CUT in shell.out
    browser.cookies["language"] = "zh-hans"
    assert "tower 无法连接 laptop 的 10.0.0.2:7001" in page()
