"""All nodes in one list, narrowed, changed together and given as a file; of one node its log, and
what it does in a deployment."""

import csv
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.access.scope import WHOLE_SITE
from helixweb.common.models import Event
from helixweb.deployment import node_log
from helixweb.deployment.log_models import NodeLogLine
from helixweb.deployment.models import Deployment, NodeAssignment
from helixweb.deployment.stages import memory_chart
from helixweb.inventory.models import Change, Cluster, Link, Node, NodeTag
from helixweb.inventory.node_list import asked_of, nodes_matching
from helixweb.inventory.views.network import links_in_use
from planner.domain.cluster import COORDINATOR
from runtime.protocol.control import StageStats
from tests.helixweb.looking import answered, contains, program_of, shows, tight
from tests.helixweb.process_doubles import FakeAgent, FakeCluster

pytestmark = pytest.mark.usefixtures("time_stands_still")


def names(browser: Client, **query: str) -> list[str]:
    rows = browser.get(reverse("nodes"), query).context["rows"]
    return [row.node.name for row in rows]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["laptop", "mini", "tower"]),
        ({"sort": "-name"}, ["tower", "mini", "laptop"]),
        ({"q": "T"}, ["laptop", "tower"]),
        ({"region": "away"}, ["mini"]),
        ({"profile": "small"}, ["laptop", "mini"]),
        ({"tag": "rack-1"}, ["tower"]),
        ({"state": "online"}, ["tower"]),
        ({"state": "lost"}, ["laptop"]),
        ({"state": "declared"}, ["mini"]),
        ({"state": "nonsense", "sort": "nonsense", "cluster": "x"}, ["laptop", "mini", "tower"]),
    ],
)
def test_filters_and_order_come_from_the_address(
    browser: Client, cluster: Cluster, query: dict[str, str], expected: list[str]
) -> None:
    now = timezone.now()
    seen = {"tower": now + timedelta(minutes=5), "laptop": now - timedelta(hours=1)}
    for name, at in seen.items():
        Node.unscoped.filter(name=name).update(joined_at=now, last_seen_at=at)
    NodeTag.objects.create(node=Node.unscoped.get(name="tower"), name="rack-1")
    assert names(browser, **query) == expected


def test_counts_follow_when_the_list_does(browser: Client, cluster: Cluster) -> None:
    count = cluster.nodes.count()
    cluster.nodes.first().delete()
    part = browser.get("/nodes/", headers={"HX-Request": "true"}).content.decode()
    contains(part, 'id="nodes-count"', f"{count - 1} nodes: ")
    assert "<html" not in part


def test_chosen_nodes_are_changed_and_the_list_stays(browser: Client, cluster: Cluster) -> None:
    chosen = [str(Node.unscoped.get(name=name).pk) for name in ("mini", "laptop")]
    sent = {"node": chosen, "action": "tag", "word": "rack-7 spot", "sort": "-name"}
    answer = browser.post(reverse("nodes-bulk"), sent, follow=True)
    assert answer.redirect_chain == [("/nodes/?sort=-name", 302)]
    assert "2 of 2 chosen nodes changed" in answer.content.decode()
    assert NodeTag.unscoped.filter(name="spot").count() == 2
    browser.post(reverse("nodes-bulk"), sent | {"action": "region", "word": "moon"})
    assert Node.unscoped.filter(region="moon").count() == 2
    assert Change.unscoped.filter(kind="node", actor="ada").count() == 4


def test_all_that_the_filter_leaves_are_changed(browser: Client, cluster: Cluster) -> None:
    sent = {"all": "yes", "profile": "small", "action": "profile", "word": "big"}
    browser.post(reverse("nodes-bulk"), sent)
    assert not Node.unscoped.exclude(profile_name="big").exists()


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"action": "tag", "word": "x"}, "No node is chosen"),
        ({"all": "yes", "action": "tag", "word": "a/b"}, "is no tag"),
        ({"all": "yes", "action": "tag", "word": ""}, "is no tag"),
        ({"all": "yes", "action": "profile", "word": "H100"}, "no compute profile"),
        ({"all": "yes", "action": "paint", "word": "red"}, "no action"),
    ],
)
def test_what_cannot_be_done_is_said_and_changes_nothing(
    browser: Client, cluster: Cluster, sent: dict[str, Any], said: str
) -> None:
    answer = browser.post(reverse("nodes-bulk"), sent, follow=True)
    assert said in answer.content.decode()
    assert not Change.unscoped.filter(kind="node").exists()


def test_deleting_asks_once_more(browser: Client, cluster: Cluster) -> None:
    mini = Node.unscoped.get(name="mini")
    sent = {"node": [str(mini.pk)], "action": "delete"}
    page = browser.post(reverse("nodes-bulk"), sent)
    assert "Delete 1 node?" in page.content.decode()
    assert Node.unscoped.count() == 3
    browser.post(reverse("nodes-bulk"), sent | {"sure": "yes"})
    assert Node.unscoped.count() == 2
    assert not Link.unscoped.exists(), "a node takes its links along"
    assert Change.unscoped.filter(kind="node", action="removed").count() == 1


def test_the_list_as_a_file_has_what_the_filter_leaves(browser: Client, cluster: Cluster) -> None:
    answer = browser.get(reverse("nodes-csv"), {"region": "home"})
    lines = list(csv.DictReader(io.StringIO(answer.getvalue().decode())))
    assert [line["name"] for line in lines] == ["laptop", "tower"]
    assert lines[1]["gpu"] == "A100"
    assert float(lines[1]["memory_bytes"]) == 8e6


def test_a_page_of_a_thousand_nodes_is_a_page_of_fifty(browser: Client, cluster: Cluster) -> None:
    Node.objects.bulk_create(
        Node(cluster=cluster, name=f"n{number:04}", region=f"r{number % 5}")
        for number in range(1000)
    )
    found = browser.get(reverse("nodes"), {"page": "2"})
    assert len(found.context["rows"]) == 50
    assert "51 to 100 of 1003" in found.content.decode()
    assert nodes_matching(WHOLE_SITE, asked_of({"region": "r3"}), now=timezone.now()).count() == 200
    network = answered(browser.get(reverse("network", args=[cluster.pk])), 200)
    assert network.context["matrix"]["grouped"]
    assert len(network.context["matrix"]["chart"].figure["data"][0]["x"]) == 8
    opened = browser.get(reverse("network", args=[cluster.pk]), {"from": "r1", "to": "r2"})
    assert opened.context["matrix"]["left_out"] == 400 - 64


NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def agent(cluster: Cluster, user: Any) -> FakeAgent:
    return FakeAgent(cluster, "tower", user, port=7001)


def line(text: str, *, level: str = "info", at: datetime = NOW) -> dict[str, Any]:
    return {"at_s": at.timestamp(), "source": "stage", "level": level, "text": text}


def tell(agent: FakeAgent, *lines: dict[str, Any]) -> None:
    answered(agent.http.post("/api/v1/agent/log", {"lines": list(lines)}), 204)


def test_a_node_keeps_its_last_lines_only_and_each_its_own(
    agent: FakeAgent, cluster: Cluster, user: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_log, "KEPT_LINES", 5)
    other = FakeAgent(cluster, "laptop", user, port=7002)
    tell(other, line("of another node"))
    for first in (0, 4, 8):
        tell(agent, *(line(f"line {number}") for number in range(first, first + 4)))
    kept = NodeLogLine.unscoped.filter(node=agent.row).order_by("pk")
    assert [row.text for row in kept] == [f"line {number}" for number in range(7, 12)]
    assert NodeLogLine.unscoped.filter(node=other.row).count() == 1


def test_old_lines_are_forgotten(agent: FakeAgent) -> None:
    tell(agent, line("old", at=NOW - timedelta(days=8)), line("new"))
    node_log.prune_log(now=NOW)
    assert [row.text for row in NodeLogLine.unscoped.all()] == ["new"]


def test_the_page_of_the_node_hears_of_new_lines(agent: FakeAgent) -> None:
    tell(agent, line("hello"))
    event = Event.objects.get(type="node-log")
    assert event.topic == f"node:{agent.row.pk}"
    assert event.data == {"node": agent.row.pk}, "the lines themselves are fetched by who looks"


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [line("x" * 501)],
        [line("x", level="loud")],
        [line("x")] * 101,
        [{**line("x"), "at_s": 1e12}],
    ],
)
def test_what_is_out_of_bounds_is_refused(agent: FakeAgent, lines: list[dict[str, Any]]) -> None:
    answered(agent.http.post("/api/v1/agent/log", {"lines": lines}), 400)
    assert not NodeLogLine.unscoped.exists()


def test_an_agent_that_tells_without_end_is_held_back(agent: FakeAgent) -> None:
    statuses = {
        agent.http.post("/api/v1/agent/log", {"lines": [line("again")]}).status_code
        for _ in range(61)
    }
    assert statuses == {204, 429}


def test_the_page_shows_the_lines_that_are_asked_for(agent: FakeAgent, browser: Client) -> None:
    tell(agent, line("<b>usual</b>"), line("careful", level="warning"), line("bad", level="error"))
    page = f"/clusters/{agent.row.cluster_id}/nodes/{agent.row.pk}/"
    shows(browser.get(page), "&lt;b&gt;usual&lt;/b&gt;", f"node:{agent.row.pk}")
    for address in (f"{page}?level=warning&lines=50", f"{page}log?level=warning&lines=50"):
        text = browser.get(address).content.decode()
        contains(text, "careful", "bad")
        assert "usual" not in text
    assert "<html" not in browser.get(f"{page}log").content.decode()
    assert "usual" in browser.get(f"{page}log?level=loud&lines=-1").content.decode()
    assert browser.get(f"/clusters/{agent.row.cluster_id + 1}/nodes/1/log").status_code == 404


def test_a_page_without_lines_says_where_they_come_from(agent: FakeAgent, browser: Client) -> None:
    page = f"/clusters/{agent.row.cluster_id}/nodes/{agent.row.pk}/log"
    assert "Nothing is logged yet" in browser.get(page).content.decode()
    assert "No line of this level" in browser.get(f"{page}?level=error").content.decode()


def test_programs_read_the_log_with_scope_read(agent: FakeAgent, user: Any, api: APIClient) -> None:
    tell(agent, line("fine"), line("bad", level="error"))
    path = f"/api/v1/nodes/{agent.row.pk}/log"
    assert [row["text"] for row in api.get(path).json()] == ["fine", "bad"]
    assert [row["text"] for row in api.get(path, {"limit": 1}).json()] == ["bad"]
    (row,) = api.get(path, {"level": "error"}).json()
    assert (row["level"], row["source"], row["at"]) == ("error", "stage", "2026-11-21T12:00:00Z")
    assert api.get(path, {"level": "loud"}).status_code == 400
    assert api.get(path, {"offset": 3}).status_code == 400
    assert APIClient().get(path).status_code == 401
    assert program_of(user, "write").get(path).status_code == 403


STATS = StageStats(
    kv_pages_total=100, kv_pages_used=40, kv_pages_cached=10, sequences=3, steps_total=7,
    prompt_tokens_total=11, decode_tokens_total=13, busy_s_total=1.0, uptime_s=2.0,
    weights_bytes=2_000_000, kv_bytes=1_000_000,
)  # fmt: skip


@pytest.fixture
def deployed(joined: FakeCluster, user: Any) -> Deployment:
    """The tiny cluster with a plan at work, every stage ready."""
    row = joined.deploy()
    NodeAssignment.unscoped.update(
        phase="ready", observed_generation=row.generation, stats=STATS.model_dump(mode="json")
    )
    return row


def placed(deployed: Deployment) -> Node:
    node = deployed.assignments.select_related("node").order_by("pk")[0].node
    assert node is not None
    return node


def test_a_node_page_tells_layers_memory_and_phases(browser: Client, deployed: Deployment) -> None:
    node = placed(deployed)
    page = browser.get(reverse("node", args=[node.cluster_id, node.pk])).content.decode()
    assert "40 of 100 pages in use, 10 kept for prompts" in page
    contains(page, "Memory by component", "11 prompt, 13 decode")
    contains(page, reverse("deployment", args=[deployed.pk]), deployed.topic)
    listed = tight(browser.get(reverse("nodes")).content.decode())
    assert '<meter data-meter="kv" min="0" max="1" high="0.9" value="0.400"' in listed


def test_the_components_of_memory_add_up_to_what_the_node_has(deployed: Deployment) -> None:
    node = placed(deployed)
    node.hardware = {
        "memory_bytes": 9_000_000,
        "memory_budget_bytes": 5_000_000,
        "gpus": [{"name": "T4", "memory_bytes": 6_000_000}],
    }
    chart = memory_chart(node, STATS)
    sizes = {trace["name"]: trace["x"][0] for trace in chart.figure["data"]}
    assert sizes == pytest.approx(
        {
            "weights": 2.0, "KV cache in use": 0.4, "KV cache kept for prompts": 0.1,
            "KV cache free": 0.5, "left for computing": 2.0, "not for the stage": 1.0,
        }
    )  # fmt: skip
    assert sum(sizes.values()) == pytest.approx(6.0)
    assert chart.figure["layout"]["xaxis"]["title"]["text"] == "MB"
    assert chart.rows[0][-1] == "6 MB"


def test_the_plans_links_at_work_carry_its_flow(browser: Client, deployed: Deployment) -> None:
    used = links_in_use(deployed.cluster)
    flow = deployed.plan.document["flow"]["edges"]
    assert len(used) == sum(edge["flow_tokens_per_s"] > 0 for edge in flow)
    assert any(source == COORDINATOR for source, _ in used)
    page = browser.get(reverse("network", args=[deployed.cluster_id])).content.decode()
    assert f"{len(used)} carry the plan&#x27;s flow" in page
    Deployment.unscoped.update(status="stopped")
    assert links_in_use(deployed.cluster) == frozenset()
