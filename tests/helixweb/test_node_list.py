"""All nodes in one list: narrowed and paged by the database, changed together, given as a file."""

import csv
import io
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from helixweb.access.scope import WHOLE_SITE
from helixweb.inventory.models import Change, Cluster, Link, Node, NodeTag
from helixweb.inventory.node_list import asked_of, nodes_matching
from tests.helixweb.looking import answered, contains


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
