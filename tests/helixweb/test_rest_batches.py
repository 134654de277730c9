"""Many rows at once over REST: all of it or nothing, and each item is told what is wrong."""

from typing import Any

import pytest
from rest_framework.test import APIClient

from helixweb.common.models import Event
from helixweb.common.rest.viewsets import MAX_ITEMS, EditViewSet
from helixweb.inventory.models import Change, Cluster, Link, Node
from tests.helixweb.rest_collections import collections

NODES = "/api/v1/nodes/batch/"


def told(answer: Any) -> dict[str, str]:
    assert answer.status_code == 400, answer.content
    return {error["field"]: error["message"] for error in answer.json()["errors"]}


def done_so_far() -> int:
    """Lines of the change log; what was refused stands there, too, and is none of these."""
    return Change.unscoped.exclude(action=Change.Action.REFUSED).count()


def ids(cluster: Cluster) -> dict[str, int]:
    return dict(cluster.nodes.values_list("name", "pk"))


def test_rows_are_deleted_changed_and_made_at_once(api: APIClient, cluster: Cluster) -> None:
    known = ids(cluster)
    answer = api.post(
        NODES,
        {
            "delete": [known["mini"]],
            "update": {known["tower"]: {"region": "away"}, known["laptop"]: {"name": "mini"}},
            "create": [{"cluster": cluster.pk, "name": "laptop", "region": "x"}],
        },
    )
    assert answer.status_code == 200, answer.content
    done = answer.json()
    assert done["deleted"] == [known["mini"]]
    assert [row["name"] for row in done["updated"]] == ["tower", "mini"]
    made = api.get(f"/api/v1/nodes/{done['created'][0]['id']}/").json()
    assert done["created"] == [made]
    regions = dict(cluster.nodes.values_list("name", "region"))
    assert regions == {"tower": "away", "mini": "home", "laptop": "x"}


def test_what_is_wrong_is_told_of_every_item_at_once(api: APIClient, cluster: Cluster) -> None:
    known = ids(cluster)
    before = (list(Node.unscoped.values()), list(Link.unscoped.values()))
    counts = (done_so_far(), Event.objects.count())
    new = {"cluster": cluster.pk, "name": "new"}
    answer = api.post(
        NODES,
        {
            "delete": [known["mini"], 999_999],
            "update": {
                known["tower"]: {"region": "away"},
                known["laptop"]: {"profile_name": "H100"},
                888_888: {},
            },
            "create": [new, new, {**new, "name": "sink"}, {"name": "x", "colour": "red"}],
        },
    )
    errors = told(answer)
    assert errors["delete[999999]"] == errors["update[888888]"] == "There is no such row."
    assert "'H100'" in errors[f"update[{known['laptop']}]"]
    assert "unique" in errors["create[1]"]
    assert "reserved" in errors["create[2].name"]
    assert "Unknown field" in errors["create[3].colour"]
    assert not any(field.startswith("create[0]") for field in errors)
    assert (list(Node.unscoped.values()), list(Link.unscoped.values())) == before
    assert (done_so_far(), Event.objects.count()) == counts


def test_rows_that_changed_since_they_were_read_are_left(api: APIClient, cluster: Cluster) -> None:
    known = ids(cluster)
    read = api.get(f"/api/v1/nodes/{known['tower']}/")["ETag"]
    body = {"update": {known["tower"]: {"region": "away"}}, "if_match": {known["tower"]: read}}
    assert api.post(NODES, body).status_code == 200
    stale = {**body, "delete": [known["mini"]]}
    assert "read it again" in told(api.post(NODES, stale))[f"update[{known['tower']}]"]
    assert Node.unscoped.filter(pk=known["mini"]).exists()


@pytest.mark.parametrize(
    ("body", "field", "said"),
    [
        ({}, "", "give 1 to 500"),
        ({"create": [{}] * (MAX_ITEMS + 1)}, "", "501 rows"),
        ({"delete": [1, 1]}, "delete", "named twice"),
        ({"delete": [1], "update": {"1": {}}}, "update", "do one of the two"),
        ({"update": {"tower": {}}}, "update[tower]", "valid integer"),
        ({"delete": [1], "if_match": {"2": "*"}}, "if_match", "leave it out"),
        ({"remove": [1]}, "remove", "Unknown field"),
        ({"delete": ["x"]}, "delete.0", "valid integer"),
    ],
)
def test_a_batch_that_makes_no_sense_is_refused(
    api: APIClient, cluster: Cluster, body: Any, field: str, said: str
) -> None:
    errors = told(api.post(NODES, body))
    assert said in errors[field], errors


def test_every_collection_that_is_edited_takes_batches(api: APIClient, cluster: Cluster) -> None:
    edited = [address for address, view in collections().items() if issubclass(view, EditViewSet)]
    assert len(edited) >= 7
    for address in edited:
        assert told(api.post(f"{address}batch/", {"delete": [999_999]}))
