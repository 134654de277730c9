"""Lists of the REST API are asked in the same words, and show what DRF's serializers would; batches
are done whole or not at all, and each item's error is named."""

import json
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import RequestFactory
from django.utils import timezone
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.test import APIClient

from helixweb.access.models import Grant
from helixweb.access.roles import Role
from helixweb.common.models import Event
from helixweb.common.rest import lists
from helixweb.common.rest.lists import ordered_columns, parameters_of_list, shown_fields
from helixweb.common.rest.rendering import JsonRenderer
from helixweb.common.rest.viewsets import MAX_ITEMS, EditViewSet, ReadViewSet
from helixweb.deployment.models import Profiling
from helixweb.deployment.services.draining import drain
from helixweb.inventory.models import Change, Cluster, LanguageModel, Link, Node
from helixweb.inventory.services import records
from tests.helixweb.everything import NAME, make_world
from tests.helixweb.looking import answered, api_of, denied, statements
from tests.helixweb.rest_collections import collections


@pytest.fixture(scope="module")
def made(rows_of_module: None) -> dict[str, Any]:
    """The rows of a site with something of everything."""
    return make_world()


@pytest.fixture
def world(db: None, made: dict[str, Any]) -> APIClient:
    """An admin of that site."""
    return api_of(get_user_model().objects.get(username=made["user"]))


def rows(api: APIClient, address: str, **parameters: Any) -> list[dict[str, Any]]:
    answer = api.get(address, parameters)
    assert answer.status_code == 200, (address, parameters, answer.content)
    return answer.json()["results"]


def errors_in(answer: Any) -> dict[str, str]:
    errors = answered(answer, 400).json()["errors"]
    return {error["field"]: error["message"] for error in errors}


def told(api: APIClient, address: str, **parameters: Any) -> dict[str, str]:
    return errors_in(api.get(address, parameters))


@pytest.mark.usefixtures("time_stands_still")
def test_every_list_shows_what_its_serializer_shows(world: APIClient) -> None:
    seen = 0
    for zone in ("UTC", "Asia/Tokyo"):
        for address, view in collections().items():
            world.cookies["zone"] = zone
            shown = rows(world, address, limit=1000)
            seen += bool(shown)
            if not shown:
                continue
            with timezone.override(zone):
                assert shown == as_drf_says(view, shown), (address, zone)
    assert seen >= 2 * 20


def as_drf_says(view: type[ReadViewSet[Any]], shown: list[dict[str, Any]]) -> Any:
    request: Any = RequestFactory().get("/")
    request.user = get_user_model().objects.get(username=f"{NAME}-person")
    made = view(action="list", request=request, kwargs={})
    serializer = made.get_serializer_class()
    key = "request" if "request" in shown[0] else "id"
    rows = made.get_queryset()
    found = {str(getattr(row, "pk" if key == "id" else key)): row for row in rows}
    listed = [found[str(row[key])] for row in shown]
    drawn = serializer(listed, many=True, context={"request": request})
    return json.loads(JSONRenderer().render(drawn.data))


@pytest.mark.usefixtures("time_stands_still")
def test_no_list_takes_more_queries_for_more_rows(world: APIClient) -> None:
    cluster, model = Cluster.unscoped.get(name=f"{NAME}-many"), LanguageModel.objects.earliest("pk")
    now = timezone.now()
    for number in range(30):
        node = Node.objects.create(
            cluster=cluster, name=f"tagged-{number}", joined_at=now, last_seen_at=now
        )
        node.tags.create(name="rack-7")
        drain(node, user=None, now=now)
        Profiling.objects.create(node=node, model=model, created_at=now)
    compared = 0
    for address in collections():
        count = world.get(address, {"limit": 1}).json()["count"]
        # The first rows of the newest kind are alike; others hang on fewer or more.
        few, many = (queries(world, address, limit) for limit in (3, 30))
        assert many <= few, address
        compared += count >= 10
    assert compared >= 8


def queries(api: APIClient, address: str, limit: int) -> int:
    return len(statements(lambda: rows(api, address, limit=limit)))


@pytest.mark.slow
def test_every_list_can_be_ordered_by_what_it_shows(world: APIClient) -> None:
    for address, view in collections().items():
        made = view(action="list")
        columns = ordered_columns(made.queryset.model, made.get_serializer_class())
        assert columns, address
        for name in columns:
            shown = {"fields": name, "limit": 1000}
            rising = rows(world, address, ordering=name, **shown)
            values = [row[name] for row in rising if row[name] is not None]
            if all(isinstance(value, int | float) for value in values):
                assert values == sorted(values), (address, name)
            filled = len(values)
            assert all(row[name] is None for row in rising[filled:]), (address, name)
            if filled < len(rising) or name == min(columns):
                falling = rows(world, address, ordering=f"-{name}", **shown)
                assert all(row[name] is not None for row in falling[:filled]), (address, name)
        refused = told(world, address, ordering="id,colour" if "id" in columns else "colour")
        assert "'colour'" in refused["ordering"], address


def test_every_list_and_row_shows_only_the_fields_that_are_asked_for(world: APIClient) -> None:
    for address, view in collections().items():
        serializer = view(action="list").get_serializer_class()
        first, *_, last = shown_fields(serializer)
        whole = rows(world, address, limit=3)
        if not whole:
            continue
        part = rows(world, address, fields=f"{last},{first}", limit=3)
        assert part == [{name: row[name] for name in (first, last)} for row in whole], address
        row = f"{address}{whole[0].get('id', whole[0].get('request'))}/"
        one = world.get(row, {"fields": first})
        assert one.json() == {first: whole[0][first]}, row
        for place in (address, row):
            assert "'colour'" in told(world, place, fields=f"{first},colour")["fields"]


def test_every_list_and_row_refuses_what_it_does_not_know(world: APIClient) -> None:
    for address in collections():
        assert "the known ones are" in told(world, address, colour="red")["colour"]
        for name in ("json", "xml"):
            assert "the known ones are" in told(world, address, format=name)["format"]
        for wrong in (1001, "abc"):
            assert "from 1 to 1000" in told(world, address, limit=wrong)["limit"]
        assert "from 0" in told(world, address, offset=-1)["offset"]
        first = rows(world, address, limit=1)
        if not first:
            continue
        row = first[0]
        where = f"{address}{row.get('id', row.get('request'))}/"
        assert told(world, where, limit=1) == {
            "limit": "Unknown parameter; the known ones are: fields."
        }
    for view in collections().values():
        assert {"q", "ordering", "fields", "limit", "offset"} <= set(parameters_of_list(view()))


def test_every_list_is_searched(world: APIClient) -> None:
    for address in collections():
        assert rows(world, address, q="no such words anywhere") == []
        assert "at most 200" in told(world, address, q="x" * 201)["q"]
        assert "Null" in told(world, address, q="\x00")["q"]


def test_words_are_found_wherever_they_are(api: APIClient, cluster: Cluster) -> None:
    node = cluster.nodes.get(name="tower")
    for name in ("rack-7", "rack-70"):
        node.tags.create(name=name)
    assert [row["name"] for row in rows(api, "/api/v1/nodes/", q="RACK tow")] == ["tower"]
    assert rows(api, "/api/v1/nodes/", q="rack laptop") == []


def test_lists_are_filtered_by_values_and_bounds(api: APIClient, cluster: Cluster) -> None:
    found = rows(api, "/api/v1/nodes/", cluster=cluster.pk, name__in="tower,mini", ordering="-name")
    assert [row["name"] for row in found] == ["tower", "mini"]
    assert rows(api, "/api/v1/nodes/", cluster__in=f"{cluster.pk}", region="away")
    slow = rows(api, "/api/v1/links/", cluster=cluster.pk, bandwidth_bytes_per_s__lte=12.5e6)
    assert [row["source"] for row in slow] == ["tower"]
    assert rows(api, "/api/v1/links/", cluster=cluster.pk, bandwidth_bytes_per_s__gte=12.6e6) == []
    assert "number" in told(api, "/api/v1/links/", latency_s__gte="soon")["latency_s__gte"]


def test_an_address_without_parameters_refuses_them(api: APIClient, cluster: Cluster) -> None:
    for address in (
        f"clusters/{cluster.pk}/bottleneck",
        f"profiles/{cluster.profiles.first().pk}/export",
    ):
        refused = told(api, f"/api/v1/{address}/", colour="red")
        assert refused == {"colour": "Unknown parameter; there are none here."}
    made = api.post("/api/v1/nodes/?colour=red", {"cluster": cluster.pk, "name": "new"})
    assert made.status_code == 400
    assert not Node.unscoped.filter(name="new").exists()


def test_a_format_that_an_address_does_not_write_is_named(api: APIClient, cluster: Cluster) -> None:
    refused = told(api, "/api/v1/export/", format="xml")
    assert refused == {"format": "'xml' is no format of this; use csv, json, yaml."}
    assert b"clusters:" in api.get("/api/v1/export/?format=yaml").content
    assert "format" in told(api, "/api/v1/events/", format="json", topics=f"cluster:{cluster.pk}")


def test_what_is_neither_true_nor_false_is_refused(api: APIClient) -> None:
    for wrong in ("maybe", "2", "null", "100%"):
        assert "true or false" in told(api, "/api/v1/users/", is_active=wrong)["is_active"]
    assert rows(api, "/api/v1/users/", is_active="true") == rows(api, "/api/v1/users/")
    assert rows(api, "/api/v1/users/", is_active="False") == []


@pytest.mark.parametrize("given", ["1.0", "1e0", "0x1", "one"])
@pytest.mark.parametrize("name", ["id", "max_context_tokens", "num_layers__gte"])
def test_what_is_no_whole_number_is_refused(api: APIClient, name: str, given: str) -> None:
    assert told(api, "/api/v1/models/", **{name: given}).keys() == {name}


def test_no_parameter_is_empty_as_if_it_meant_all_rows(api: APIClient, cluster: Cluster) -> None:
    for name in ("cluster", "name", "name__in", "uuid", "last_seen_at__gte", "limit", "ordering"):
        assert told(api, "/api/v1/nodes/", **{name: ""}).keys() == {name}
    refused = told(api, f"/api/v1/clusters/{cluster.pk}/metrics/", since="")
    assert refused == {"since": "It is empty; give a value, or leave it out."}
    assert told(api, "/api/v1/nodes/", name=["", "tower"]).keys() == {"name"}
    assert rows(api, "/api/v1/nodes/", q="") == rows(api, "/api/v1/nodes/")


def test_no_parameter_is_given_twice(api: APIClient, cluster: Cluster) -> None:
    """All but the last would be ignored."""
    for address in (f"/api/v1/nodes/?cluster={cluster.pk}&name=tower&name=mini",
                    f"/api/v1/clusters/{cluster.pk}/metrics/?since=1&since=2"):  # fmt: skip
        denied(api.get(address), 400, "more than once")
    assert api.get("/api/v1/plans/compare/?plan=1&plan=2").status_code in (400, 404)
    assert "more than once" not in api.get("/api/v1/plans/compare/?plan=1&plan=2").json()["detail"]


def test_moments_that_no_database_keeps_are_refused(api: APIClient, cluster: Cluster) -> None:
    seen = 0
    for address, view in collections().items():
        for name in parameters_of_list(view()):
            if name.partition("__")[0].endswith(("_at", "at")):
                for moment in ("0001-01-01T00:00:00+12:00", "9999-12-31T23:59:59-12:00"):
                    answer = api.get(address, {name: moment})
                    assert answer.status_code in (400, 403), (address, name, answer.content)
                    seen += answer.status_code == 400
    assert seen >= 20


def test_no_list_is_ordered_by_what_it_does_not_show() -> None:
    class Hiding(serializers.ModelSerializer[Node]):
        class Meta:
            model = Node
            fields = ["name", "credential_hash"]
            extra_kwargs = {"credential_hash": {"write_only": True}}

    assert ordered_columns(Node, Hiding) == {"name": "name"}


def test_a_method_that_is_not_there_is_refused_whatever_its_parameters(api: APIClient) -> None:
    for query in ("", "?colour=red", "?name="):
        refused = answered(api.delete(f"/api/v1/nodes/{query}"), 405)
        assert refused.json()["detail"].endswith("not allowed. Use GET, POST, HEAD, OPTIONS.")
    refused = answered(api.get("/api/v1/nodes/", headers={"Accept": "text/html"}), 406)
    assert refused.json()["detail"].endswith("Accept application/json.")
    missing = answered(api.get("/api/v1/nodes/999/"), 404)
    assert missing.json()["detail"] == "There is nothing at /api/v1/nodes/999/ that you may see."


@pytest.mark.parametrize("written", ["0_{}", "{}.0", "+{}", " {}", "\u0967", "x", "{},x"])
def test_a_filter_by_an_id_that_is_none_is_refused(
    api: APIClient, cluster: Cluster, written: str
) -> None:
    """Python makes a number of most of them, so rows of another cluster would be shown."""
    text = written.format(cluster.pk)
    for name in ("cluster", "cluster__in", "id", "id__gte"):
        refused = answered(api.get("/api/v1/nodes/", {name: text}), 400)
        assert refused.json()["errors"][0]["field"] == name
    two = api.get("/api/v1/nodes/", {"cluster__in": f"{cluster.pk},{cluster.pk}"})
    assert answered(two, 200).json()["count"] == 3


def test_pages_of_equal_values_leave_no_row_out(api: APIClient, cluster: Cluster) -> None:
    pages = [
        rows(api, "/api/v1/nodes/", ordering="region", limit=1, offset=place) for place in range(3)
    ]
    assert len({page[0]["id"] for page in pages}) == 3


def test_a_number_that_json_does_not_know_is_null() -> None:
    rows = [{"price": float("inf")}, {"price": float("nan")}, {"price": 1.5}]
    told = json.loads(JsonRenderer().render(rows))
    assert told == [{"price": None}, {"price": None}, {"price": 1.5}]


@pytest.mark.django_db
def test_what_one_reader_may_choose_is_not_kept_for_the_next(
    cluster: Cluster, api: APIClient, django_user_model: Any
) -> None:
    lists._filterset_of.cache_clear()
    other = records.create(Cluster, name="other")
    vera = django_user_model.objects.create_user("vera")
    Grant.objects.create(user=vera, cluster=cluster, role=Role.VIEWER)
    viewer = api_of(vera)
    assert viewer.get("/api/v1/nodes/", {"cluster": cluster.pk}).status_code == 200
    assert viewer.get("/api/v1/nodes/", {"cluster": other.pk}).status_code == 400
    assert api.get("/api/v1/nodes/", {"cluster": other.pk}).status_code == 200
    assert api.get("/api/v1/nodes/", {"cluster__in": other.pk}).status_code == 200


def test_an_object_is_no_list_of_what_it_names(world: APIClient) -> None:
    for wrong in ({}, {"ada": 1}):
        refused = answered(world.post("/api/v1/groups/", {"name": "x", "members": wrong}), 400)
        assert refused.json()["errors"][0]["field"] == "members"


NODES = "/api/v1/nodes/batch/"


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
    errors = errors_in(answer)
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
    assert "read it again" in errors_in(api.post(NODES, stale))[f"update[{known['tower']}]"]
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
    errors = errors_in(api.post(NODES, body))
    assert said in errors[field], errors


def test_every_collection_that_is_edited_takes_batches(api: APIClient, cluster: Cluster) -> None:
    edited = [address for address, view in collections().items() if issubclass(view, EditViewSet)]
    assert len(edited) >= 7
    for address in edited:
        assert errors_in(api.post(f"{address}batch/", {"delete": [999_999]}))
