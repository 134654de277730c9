"""The change log: what was done to a row, by whom, and its values around it."""

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.inventory.models import Change, Cluster, Link, Node
from helixweb.inventory.services import bulk, change_log, records
from helixweb.inventory.services.change_log import record, values_of
from planner.domain.errors import InvalidProblem
from tests.helixweb.looking import contains, fresh


def test_a_change_is_logged_with_author_and_both_values(browser: Client, cluster: Cluster) -> None:
    mini = Node.unscoped.get(name="mini")
    sent = {"name": "mini", "region": "away", "profile_name": "small"}
    browser.post(reverse("node-edit", args=[cluster.pk, mini.pk]), sent)
    assert not Change.unscoped.filter(kind="node").exists(), "nothing differs"
    browser.post(reverse("node-edit", args=[cluster.pk, mini.pk]), sent | {"region": "moon"})
    line = Change.unscoped.filter(kind="node", row_id=mini.pk).get()
    assert (line.actor, line.action, line.cluster) == ("ada", "changed", cluster)
    assert (line.before, line.after) == ({"region": "away"}, {"region": "moon"})


def test_of_a_node_that_announces_itself_changes_show(browser: Client, cluster: Cluster) -> None:
    hardware = {"hostname": "rack-4-machine-17", "cpu_count": 32, "memory_bytes": 270_000_000_000}
    node = Node.unscoped.get(name="tower")
    node.hardware = {**hardware, "memory_budget_bytes": 12_000_000}
    before = values_of(node)
    node.hardware = {**hardware, "memory_budget_bytes": 11_000_000}
    record(node, Change.Action.CHANGED, before=before, after=values_of(node))
    page = browser.get("/changes/?kind=node").content.decode()
    contains(page, "12000000", "11000000")
    assert "rack-4-machine-17" not in page


def test_a_deleted_row_stays_in_the_log_with_its_last_values(cluster: Cluster) -> None:
    records.delete(Link.unscoped.get())
    line = Change.unscoped.get(kind="link")
    assert (line.action, line.name, line.after) == ("removed", "tower -> mini", None)
    assert line.before["latency_s"] == 0.02
    records.delete(cluster)
    newest = Change.unscoped.all()[0]
    assert (newest.kind, newest.action, newest.cluster_name) == ("cluster", "removed", "tiny")
    line.refresh_from_db()
    assert (line.cluster, line.cluster_name) == (None, "tiny"), "the log outlives its cluster"


def test_no_secret_gets_into_the_log(cluster: Cluster) -> None:
    mini = Node.unscoped.get(name="mini")
    mini.credential_hash = "f" * 64
    records.delete(mini)
    line = Change.unscoped.get(kind="node")
    assert "f" * 64 not in str(line.before)


def test_a_profile_that_one_of_the_clusters_lacks_changes_no_node(cluster: Cluster) -> None:
    other = records.create(Cluster, name="other")
    stranger = records.create(Node, cluster=other, name="stranger")
    mini = Node.unscoped.get(name="mini")
    with pytest.raises(InvalidProblem, match="cluster other has no compute profile 'big'"):
        bulk.change_nodes(Node.unscoped.all(), [mini.pk, stranger.pk], profile_name="big")
    assert fresh(mini).profile_name == "small"


def test_lines_of_more_than_a_year_ago_are_forgotten(cluster: Cluster) -> None:
    now = timezone.now()
    records.update(Node.unscoped.get(name="mini"), region="moon")
    change_log.prune_changes(now + timedelta(days=300))
    assert Change.unscoped.filter(kind="node").exists()
    change_log.prune_changes(now + timedelta(days=400))
    assert not Change.unscoped.exists()


def test_programs_read_the_log_and_change_many_nodes(api: APIClient, cluster: Cluster) -> None:
    ids = [Node.unscoped.get(name=name).pk for name in ("mini", "tower")]
    sent = {"nodes": ids, "region": "moon", "add_tags": ["rack-7"]}
    assert api.post("/api/v1/nodes/bulk/", sent).json() == {"changed": 2}
    assert api.get(f"/api/v1/nodes/{ids[0]}/").json()["tags"] == ["rack-7"]
    log = api.get("/api/v1/changes/", {"kind": "node"}).json()["results"]
    assert {line["name"] for line in log} == {"mini", "tower"}
    assert {line["actor"] for line in log} == {"ada"}
    batch = api.get("/api/v1/changes/", {"batch": log[0]["batch"]}).json()["results"]
    assert len(batch) == 2
    assert log[0]["after"] == {"region": "moon", "tags": ["rack-7"]}
    sent = {"nodes": ids, "region": "moon", "remove_tags": ["rack-7"]}
    for changed in (2, 0):
        assert api.post("/api/v1/nodes/bulk/", sent).json() == {"changed": changed}
    wrong = api.post("/api/v1/nodes/bulk/", {"nodes": ids, "add_tags": ["two words"]})
    assert wrong.status_code == 400
    assert "is no tag" in wrong.json()["detail"]


def test_many_nodes_are_changed_all_or_none(api: APIClient, cluster: Cluster) -> None:
    mini = Node.unscoped.get(name="mini")
    refused = api.post("/api/v1/nodes/bulk/", {"nodes": [mini.pk, 998, 999], "region": "moon"})
    assert refused.status_code == 400
    assert "There is no node 998, 999" in refused.json()["detail"]
    assert fresh(mini).region != "moon"
    beyond = api.post("/api/v1/nodes/bulk/", {"nodes": [1187198643019772134764314624]})
    assert beyond.status_code == 400
    assert "9223372036854775807" in str(beyond.json())


def test_lines_of_a_batch_are_linked(api: APIClient, browser: Client, cluster: Cluster) -> None:
    known = dict(cluster.nodes.values_list("name", "pk"))
    sent = {
        "delete": [known["mini"]],
        "update": {known["tower"]: {"region": "moon"}},
        "create": [{"cluster": cluster.pk, "name": "new", "region": "home"}],
    }
    headers = {"X-Request-ID": "move-7"}
    assert api.post("/api/v1/nodes/batch/", sent, headers=headers).status_code == 200
    records.update(Node.unscoped.get(name="laptop"), region="moon")
    by_request = api.get("/api/v1/changes/", {"request_id": "move-7"}).json()["results"]
    assert {line["name"] for line in by_request} == {"mini", "tower", "new"}
    (batch,) = {line["batch"] for line in by_request}
    assert api.get("/api/v1/changes/", {"batch": batch}).json()["results"] == by_request
    assert Change.unscoped.get(name="laptop").batch is None
    page = browser.get("/changes/").content.decode()
    assert page.count(f'href="?batch={batch}"') == 3
    found = browser.get("/changes/", {"batch": batch}).context["page"]
    assert {line.name for line in found} == {"mini", "tower", "new"}
    lines = b"".join(browser.get("/changes/changes.csv", {"batch": batch})).decode().splitlines()
    assert len(lines) == 4
    assert all(batch in line for line in lines[1:])
