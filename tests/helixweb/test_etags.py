"""Rows over REST have versions: what did not change is not sent, what changed is not run over."""

import threading
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.common.api_keys import create_api_key
from helixweb.common.models import ApiKey
from helixweb.inventory.models import Change, Cluster, Node
from helixweb.inventory.services import records
from tests.helixweb.looking import answered, api_of, at_once, fresh, program, statements
from tests.helixweb.test_rest_fuzz import PREFIX, site


@pytest.fixture
def node(cluster: Cluster) -> Node:
    return cluster.nodes.get(name="tower")


def address(node: Node) -> str:
    return f"/api/v1/nodes/{node.pk}/"


def tag_of(api: APIClient, node: Node) -> str:
    return api.get(address(node))["ETag"]


def test_a_row_that_is_known_already_is_not_sent_again(api: APIClient, node: Node) -> None:
    first = api.get(address(node))
    assert first["ETag"].startswith('"')
    for header in (first["ETag"], f"W/{first['ETag']}", f'"other", {first["ETag"]}', "*"):
        again = api.get(address(node), headers={"If-None-Match": header})
        assert (again.status_code, again.content) == (304, b"")
        assert again["ETag"] == first["ETag"]
    records.update(node, region="away")
    changed = answered(api.get(address(node), headers={"If-None-Match": first["ETag"]}), 200)
    assert changed["ETag"] != first["ETag"]


def test_a_list_that_is_known_already_is_not_sent_again(api: APIClient, node: Node) -> None:
    first = api.get("/api/v1/nodes/", {"limit": 2})
    assert first["Cache-Control"] == "private, no-cache"
    known = {"If-None-Match": first["ETag"]}
    again = api.get("/api/v1/nodes/", {"limit": 2}, headers=known)
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    assert "Content-Type" not in again
    assert api.get("/api/v1/nodes/", {"limit": 1}, headers=known).status_code == 200
    records.update(node, region="away")
    changed = answered(api.get("/api/v1/nodes/", {"limit": 2}, headers=known), 200)
    assert changed["ETag"] != first["ETag"]


def test_an_edit_of_what_somebody_else_changed_is_refused(api: APIClient, node: Node) -> None:
    read = tag_of(api, node)
    records.update(node, region="away")
    done = Change.unscoped.exclude(action=Change.Action.REFUSED)
    changes = done.count()
    refused = api.patch(address(node), {"region": "home"}, headers={"If-Match": read})
    assert refused.status_code == 412
    assert refused.json()["type"].endswith("#stale")
    assert "read it again" in refused.json()["detail"]
    assert api.delete(address(node), headers={"If-Match": read}).status_code == 412
    node.refresh_from_db()
    assert (node.region, done.count()) == ("away", changes)


@pytest.mark.django_db
@pytest.mark.usefixtures("time_stands_still")
def test_no_row_is_edited_that_changed_since_it_was_read() -> None:
    """Each operation that takes If-Match compares it; an edit changes the tag."""
    with site() as (asked, document):
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if not any(one["name"] == "If-Match" for one in operation["parameters"]):
                    continue
                name = f"{method.upper()} {path.removeprefix(PREFIX)}"
                row = {"id": asked.rows[path.split("/")[3]][0]} | asked.accepted.rows.get(name, {})
                where, body = path.format(**row), asked.accepted.bodies.get(name)
                read = asked.client.get(where).headers["ETag"]
                known = {"If-None-Match": read}
                assert asked.client.get(where, headers=known).status_code == 304, where
                edit = partial(asked.client.request, method, where, json=body)
                with transaction.atomic():
                    tags = ['"other"', read, *([read] if method == "patch" else [])]
                    answers = [edit(headers={"If-Match": tag}).status_code for tag in tags]
                    transaction.set_rollback(True)
                assert [status // 100 for status in answers] == [4, 2, 4][: len(tags)], where
                assert {status for status in answers if status >= 300} == {412}, where


def test_fields_of_a_key_are_chosen_as_those_of_other_rows(user: Any) -> None:
    admin = api_of(User.objects.create_superuser("root"))
    create_api_key(name="k", user=user, scopes=["read"])
    (row,) = admin.get("/api/v1/api-keys/?fields=name,used").json()["results"]
    assert row.keys() == {"name", "used"}
    pk = ApiKey.objects.get().pk
    assert admin.get(f"/api/v1/api-keys/{pk}/?fields=name").json() == {"name": "k"}
    assert admin.get("/api/v1/api-keys/?fields=secret_hash").status_code == 400


def test_if_match_is_refused_where_nothing_is_compared(api: APIClient, node: Node) -> None:
    read = {"If-Match": tag_of(api, node)}
    for address, body in (
        ("nodes/batch/", {"delete": [node.pk]}),
        ("nodes/bulk/", {"nodes": [node.pk], "region": "away"}),
        ("nodes/", {"cluster": node.cluster_id, "name": "new"}),
        (f"nodes/{node.pk}/revoke-credential/", {}),
        ("sessions/end-others/", {}),
    ):
        refused = api.post(f"/api/v1/{address}", body, headers=read)
        assert refused.status_code == 400, address
        assert [error["field"] for error in refused.json()["errors"]] == ["If-Match"]
    node.refresh_from_db()
    assert node.region == "home"
    assert not Node.unscoped.filter(name="new").exists()


def test_the_answer_to_an_edit_has_the_tag_for_the_next(api: APIClient, node: Node) -> None:
    tag = api.get(address(node), {"fields": "name"})["ETag"]
    for region in ("away", "home"):
        answer = api.patch(address(node), {"region": region}, headers={"If-Match": tag})
        assert answer.status_code == 200, answer.content
        assert answer["ETag"] == tag_of(api, node) != tag
        tag = answer["ETag"]
    assert api.delete(address(node), headers={"If-Match": tag}).status_code == 204
    made = api.post("/api/v1/nodes/", {"cluster": node.cluster_id, "name": "new"})
    where = f"/api/v1/nodes/{made.json()['id']}/"
    assert api.patch(where, {"region": "x"}, headers={"If-Match": made["ETag"]}).status_code == 200


def test_what_a_node_says_of_itself_is_no_edit_but_new_content(api: APIClient, node: Node) -> None:
    now = timezone.now()
    Node.unscoped.filter(pk=node.pk).update(joined_at=now, last_seen_at=now - timedelta(hours=1))
    read = tag_of(api, node)
    Node.unscoped.filter(pk=node.pk).update(last_seen_at=now)
    assert api.get(address(node), headers={"If-None-Match": read}).status_code == 200
    answered(api.patch(address(node), {"region": "away"}, headers={"If-Match": read}), 200)


@pytest.mark.parametrize(("header", "status"), [("*", 200), ("", 412), ("word", 412)])
def test_if_match_is_a_star_or_tags(api: APIClient, node: Node, header: str, status: int) -> None:
    answer = api.patch(address(node), {"region": "away"}, headers={"If-Match": header})
    assert answer.status_code == status


@pytest.mark.django_db(transaction=True)
def test_of_two_edits_at_once_one_wins_and_the_other_is_told(user: Any, cluster: Cluster) -> None:
    node = cluster.nodes.get(name="tower")
    key = create_api_key(name="two", user=user, scopes=["read", "write"]).secret
    read = tag_of(program(key), node)

    def edit(region: str) -> int:
        headers = {"If-Match": read}
        answer = program(key).patch(address(node), {"region": region}, headers=headers)
        return int(answer.status_code)

    regions = ("east", "west")
    found = dict(zip(regions, at_once(*(partial(edit, name) for name in regions)), strict=True))
    assert sorted(found.values()) == [200, 412]
    assert found[fresh(node).region] == 200
    assert Change.unscoped.filter(kind="node", row_id=node.pk, action="changed").count() == 1


@pytest.mark.django_db(transaction=True)
def test_edits_of_different_fields_at_once_both_stay(user: Any, cluster: Cluster) -> None:
    """The second reads the row once the first has ended, whoever sends no tag."""
    node = cluster.nodes.get(name="tower")
    key = create_api_key(name="two", user=user, scopes=["read", "write"]).secret
    edits = [{"region": "east"}, {"price_per_hour": 3.5}]
    answers = []

    def edit(body: dict[str, Any]) -> None:
        try:
            answers.append(program(key).patch(address(node), body).status_code)
        finally:
            connection.close()

    with transaction.atomic():  # nobody else writes meanwhile
        Node.unscoped.select_for_update().get(pk=node.pk)
        both = [threading.Thread(target=edit, args=(body,)) for body in edits]
        for one in both:
            one.start()
    for one in both:
        one.join(60)
    assert answers == [200, 200]
    node.refresh_from_db()
    assert (node.region, node.price_per_hour) == ("east", 3.5)


def test_a_tag_costs_no_query(api: APIClient, node: Node) -> None:
    # the roles of who asks, the row, its tags
    assert len(statements(lambda: api.get(address(node)))) == 3
