"""Pages of lists are read each time; only rows that are like none shown lately are written anew."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework import serializers
from rest_framework.test import APIClient

from helixweb.access.models import Grant
from helixweb.access.roles import Role
from helixweb.common.models import ApiKey
from helixweb.common.prepared import MOST_KEPT, Prepared, counted, prepared
from helixweb.common.rest import kept_rows, listing
from helixweb.common.rest.kept import ALWAYS
from helixweb.common.rest.kept_rows import KeptRows, RowText
from helixweb.common.rest.rendering import json_of
from helixweb.common.rest.rows import reader_of
from helixweb.inventory import services
from helixweb.inventory.models import Cluster, Link, Node

pytestmark = pytest.mark.django_db
LINKS, NODES = "/api/v1/links/", "/api/v1/nodes/"


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> KeptRows:
    kept = KeptRows(kept_rows.MOST_BYTES)
    monkeypatch.setattr(listing, "KEPT_ROWS", kept)
    return kept


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """How many rows were written anew since it was asked last."""
    made: list[Any] = []
    write = listing.json_of

    def noted(row: Any) -> bytes:
        made.append(row)
        return write(row)

    monkeypatch.setattr(listing, "json_of", noted)

    def since() -> int:
        count = len(made)
        made.clear()
        return count

    return since


def rows(api: APIClient, address: str, **parameters: Any) -> list[dict[str, Any]]:
    answer = api.get(address, parameters)
    assert answer.status_code == 200, answer.content
    found: list[dict[str, Any]] = answer.json()["results"]
    return found


def test_only_what_changed_is_written_anew(
    api: APIClient, cluster: Cluster, written: Callable[[], int]
) -> None:
    for target in ("laptop", "mini"):
        services.create(
            Link, cluster=cluster, source=target, target="tower",
            bandwidth_bytes_per_s=1e9, latency_s=0.001,
        )  # fmt: skip
    assert len(rows(api, LINKS)) == written() == 3
    before = rows(api, LINKS)
    assert written() == 0
    changed = Link.objects.earliest("pk")
    Link.objects.filter(pk=changed.pk).update(bandwidth_bytes_per_s=7.0)
    after = rows(api, LINKS)
    assert written() == 1
    assert after[0]["bandwidth_bytes_per_s"] == 7.0
    assert after[1:] == before[1:]
    assert rows(api, LINKS, ordering="-id", offset=0, limit=1000) == after[::-1]
    assert written() == 0


def test_a_row_hangs_on_its_words_and_on_settings_and_the_time(
    api: APIClient,
    cluster: Cluster,
    written: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
) -> None:
    now = timezone.now()
    Node.objects.update(joined_at=now, last_seen_at=now)
    monkeypatch.setattr(timezone, "now", lambda: now)
    count = len(rows(api, NODES))
    written()
    node = Node.objects.earliest("pk")
    node.tags.create(name="rack-7")
    assert rows(api, NODES)[0]["tags"] == ["rack-7"]
    assert written() == 1
    node.tags.all().delete()
    assert rows(api, NODES)[0]["tags"] == []
    assert written() == 0
    late = now + timedelta(seconds=settings.HELIX_NODE_LOST_AFTER_S + 1)
    monkeypatch.setattr(timezone, "now", lambda: late)
    assert {row["state"] for row in rows(api, NODES)} == {"lost"}
    assert written() == count
    settings.HELIX_NODE_LOST_AFTER_S = 1000.0
    assert {row["state"] for row in rows(api, NODES)} == {"online"}
    monkeypatch.setattr(timezone, "now", lambda: now)
    assert {row["state"] for row in rows(api, NODES, fields="state")} == {"online"}
    monkeypatch.setattr(timezone, "now", lambda: now + timedelta(seconds=1001))
    assert {row["state"] for row in rows(api, NODES, fields="state")} == {"lost"}


def test_each_zone_and_choice_of_fields_has_its_own(api: APIClient, cluster: Cluster) -> None:
    Link.objects.update(recorded_at=datetime(2026, 1, 1, tzinfo=UTC))
    for zone, ends in (("UTC", "Z"), ("Asia/Tokyo", "+09:00"), ("UTC", "Z")):
        api.cookies["zone"] = zone
        assert rows(api, LINKS)[0]["recorded_at"].endswith(ends)
        assert rows(api, LINKS, fields="recorded_at")[0].keys() == {"recorded_at"}


def test_who_loses_or_gets_a_role_sees_other_rows_at_once(user: Any, cluster: Cluster) -> None:
    other = services.create(Cluster, name="other")
    services.create(Node, cluster=other, name="far", region="away")
    vera = get_user_model().objects.create_user("vera")
    viewer = APIClient()

    def seen() -> set[int]:
        # Anew, since a client's user would keep what it was.
        viewer.force_authenticate(get_user_model().objects.get(pk=vera.pk))
        answer = viewer.get(NODES)
        if answer.status_code == 403:
            return set()
        found = {row["cluster"] for row in answer.json()["results"]}
        assert answer.json()["count"] == Node._base_manager.filter(cluster__in=found).count()
        return found

    assert seen() == set()
    here = Grant.objects.create(user=vera, cluster=cluster, role=Role.VIEWER)
    for _ in range(2):
        assert seen() == {cluster.pk}
    group = Group.objects.create(name="far")
    group.user_set.add(vera)
    Grant.objects.create(group=group, cluster=other, role=Role.VIEWER)
    for _ in range(2):
        assert seen() == {cluster.pk, other.pk}
    here.delete()
    assert seen() == {other.pk}
    group.user_set.remove(vera)
    assert seen() == set()
    vera.is_superuser = True
    vera.save()
    assert seen() == {cluster.pk, other.pk}


def test_rows_that_take_more_than_one_query_are_not_kept(
    cluster: Cluster, nothing_kept: KeptRows, written: Callable[[], int]
) -> None:
    class WithCount(serializers.ModelSerializer[Node]):
        links = serializers.SerializerMethodField()

        class Meta:
            model = Node
            fields = ("id", "links")

        def get_links(self, node: Node) -> int:
            return Link._base_manager.filter(source=node.name).count()

    def shown() -> Any:
        one = listing.RowByRow(
            name="with-count",
            rows=lambda: Node._base_manager.order_by("pk"),
            reader=reader_of(WithCount, utc=True),
            context=None,
            until_of=lambda _: ALWAYS,
        )
        return json.loads(json_of(one.page(0, 10)))

    for _ in range(2):
        assert {row["links"] for row in shown()} != {0}
        assert written() == 3
    Link._base_manager.all().delete()
    assert {row["links"] for row in shown()} == {0}


def test_what_is_kept_has_its_bounds() -> None:
    kept = KeptRows(20_000)
    text = RowText(text=b"x" * 1000, made_at=datetime.min.replace(tzinfo=UTC), until=ALWAYS)
    for number in range(100):
        kept.of("here").put(number, text)
        assert kept.of("here").get([0, number]) == [text, text]  # the first is in use
        held = sum(
            len(ofs) for generation in (kept._young, kept._old) for ofs in generation.values()
        )
        assert held <= 12
    assert kept.of("here").get([50, 0]) == [None, text]
    assert kept.of("elsewhere").get([0]) == [None]


def test_a_prepared_query_gives_what_the_query_gives(user: Any, cluster: Cluster) -> None:
    keys = [
        ApiKey.objects.create(name=name, key=name, secret_hash=name, user=user, scopes=["read"])
        for name in ("one", "two")
    ]

    def named(name: str) -> Any:
        wanted = ApiKey.objects.select_related("user").filter(secret_hash__in=[name])
        query = prepared("key-named", lambda: wanted)
        return list(query.objects(query.fetch(name)))

    for _ in range(2):
        for key in keys:
            (found,) = named(key.name)
            with CaptureQueriesContext(connection) as none:
                assert (found, found.user, found.scopes) == (key, user, ["read"])
            assert len(none) == 0
        assert named("three") == []
    nothing = Prepared(Node.objects.filter(pk__in=[]))
    assert (nothing.fetch(), nothing.columns) == ([], [])
    assert counted("none", lambda: Node.objects.filter(pk__in=[])) == 0
    for _ in range(2):
        assert counted("all", Node._base_manager.all) == 3
    Node._base_manager.earliest("pk").delete()
    assert counted("all", Node._base_manager.all) == 2


def test_few_prepared_queries_are_kept(cluster: Cluster) -> None:
    first = prepared(("few", -1), Node._base_manager.all)
    assert prepared(("few", -1), Node._base_manager.all) is first
    for number in range(MOST_KEPT):
        prepared(("few", number), Node._base_manager.all)
    assert prepared(("few", -1), Node._base_manager.all) is not first
