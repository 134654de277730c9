"""Every operation of the REST API and every page, asked for by every role, on its own cluster, on
another one, and on the whole site."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.urls import resolve
from rest_framework.exceptions import APIException
from rest_framework.test import APIClient, APIRequestFactory, force_authenticate
from rest_framework.views import APIView

from helixweb.access import audit
from helixweb.access.models import Grant
from helixweb.access.needs import declared_by, need_of
from helixweb.access.roles import Role
from helixweb.access.scope import cluster_of
from helixweb.common.models import ApiKey
from helixweb.inventory.models import Cluster
from tests.helixweb.everything import make_world
from tests.helixweb.looking import api_of
from tests.helixweb.rest_collections import openapi_document
from tests.helixweb.role_table import OPERATIONS
from tests.helixweb.test_access import filled

PREFIX = "/api/v1/"
RANKS = {"": 0, **{role.value: role.rank for role in Role}}
REFUSED, HIDDEN, ALLOWED = 403, 404, 418
ORDER = (ALLOWED, HIDDEN, REFUSED)  # of several needs the one that lets most


@dataclass(frozen=True, kw_only=True)
class Person:
    """Somebody with one role: on the site, on the cluster of the row that is asked for, or on
    another."""

    role: str
    where: str
    user: Any

    @property
    def site(self) -> int:
        return RANKS[self.role] if self.where == "site" else 0

    @property
    def on_row(self) -> int:
        return 0 if self.where == "other" else RANKS[self.role]

    def __str__(self) -> str:
        return f"{self.role or 'nobody'} of {self.where}"


@cache
def operations() -> list[tuple[str, str]]:
    return [
        (method.upper(), path.removeprefix(PREFIX))
        for path, methods in openapi_document()["paths"].items()
        for method in methods
        if path.startswith(PREFIX)
    ]


def test_every_operation_of_the_schema_stands_in_the_table_and_no_other() -> None:
    known = {f"{method} {path}" for method, path in operations()}
    assert known == set(OPERATIONS)


def word_of(need: Any) -> Any:
    """As the tables write it."""
    if need is None:
        return None
    place = "site-" if need.of_site else ""
    word = "own" if need.role is None else f"{place}{need.role}"
    return (word, f"site-{need.or_of_site}") if need.or_of_site else word


def test_the_views_declare_what_the_table_says() -> None:
    for method, path in operations():
        view = resolve(filled(PREFIX + path.replace("{", "<").replace("}", ">"))).func
        table = OPERATIONS[f"{method} {path}"]
        if table in ("process", "open"):
            assert declared_by(view) is None, path
        else:
            assert word_of(need_of(view, method)) == table, (method, path)


def expected(need: str, person: Person, *, has_row: bool) -> int:
    """What the table says of it, in words of statuses."""
    place, _, role = need.rpartition("-")
    if need in ("own", "open"):
        return ALLOWED
    wanted = RANKS[role]
    if place == "site":
        return ALLOWED if person.site >= wanted else REFUSED
    if not has_row:
        return ALLOWED if RANKS[person.role] >= wanted else REFUSED
    if person.on_row == 0:
        return HIDDEN
    return ALLOWED if person.on_row >= wanted else REFUSED


def due(need: str | tuple[str, str], person: Person, *, has_row: bool) -> int:
    """The same of several needs: the outcome that lets most."""
    needs = (need,) if isinstance(need, str) else need
    return min((expected(one, person, has_row=has_row) for one in needs), key=ORDER.index)


class World:
    """One row of every collection, all of one cluster but for what belongs to none."""

    def __init__(self) -> None:
        self.ids = make_world()
        self.admin = get_user_model().objects.get(username=self.ids["user"])
        self.other = Cluster.objects.create(name="elsewhere")
        # What the world lacks.
        ApiKey.objects.create(name="k", key="0" * 12, secret_hash="0" * 64, user=self.admin)
        self.rows: dict[str, tuple[Any, int | None]] = {"sessions": (1, None)}
        addressed = [
            path
            for method, path in operations()
            if "{" in path and OPERATIONS[f"{method} {path}"] != "process"
        ]
        for collection in {path.split("/")[0] for path in addressed}:
            self.row(collection)

    def client(self, user: Any) -> APIClient:
        return api_of(user)

    def row(self, collection: str) -> tuple[Any, int | None]:
        """(what addresses it, its cluster) of the first row of a collection, if there is any."""
        if collection not in self.rows:
            self.rows[collection] = self._find(collection)
        return self.rows[collection]

    def _find(self, collection: str) -> tuple[Any, int | None]:
        listed = self.client(self.admin).get(f"{PREFIX}{collection}/", {"limit": 100})
        assert listed.status_code == 200, (collection, listed.content)
        for row in listed.json()["results"]:
            key = row.get("request", row.get("id"))
            view = resolve(f"{PREFIX}{collection}/{key}/").func.cls  # type: ignore[attr-defined]
            model = view.queryset.model
            if not hasattr(model, "cluster_path"):
                return key, None
            cluster = cluster_of(model, **{view.lookup_field: key})
            if cluster is not None:
                return key, cluster
        raise AssertionError(f"the world has no row of {collection}; add one")

    def people(self, cluster: int) -> list[Person]:
        """Made once for each cluster: nobody, each role on the site and on the cluster, and all
        that one can be elsewhere."""
        found = [Person(role="", where="site", user=self._user("none", None, None))]
        for role in Role:
            for where, pk in (("site", None), ("row", cluster), ("other", self.other.pk)):
                if (role, where) == (Role.VIEWER, "other"):
                    continue  # an operator there is no less of a stranger here
                name = f"{role.value}-{where}-{pk}"
                found.append(
                    Person(role=role.value, where=where, user=self._user(name, role.value, pk))
                )
        return found

    def person(self, role: str, where: str) -> Any:
        """The user of that role, on the cluster that serves, on another, or on the site."""
        people = self.people(self.ids["cluster"])
        return next(one.user for one in people if (one.role, one.where) == (role, where))

    def _user(self, name: str, role: str | None, cluster: int | None) -> Any:
        user, is_new = get_user_model().objects.get_or_create(username=name)
        if is_new and role is not None:
            Grant.objects.create(user=user, role=role, cluster_id=cluster)
        return user


class Reached(APIException):
    """Whoever asks was let in: what the view would do then is no matter of roles."""

    status_code = 418


@pytest.fixture
def _stopped_behind_the_door(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views end where they would begin, so that two thousand requests take seconds."""
    ask = APIView.initial

    def initial(view: APIView, request: Any, *args: Any, **kwargs: Any) -> None:
        ask(view, request, *args, **kwargs)
        raise Reached

    monkeypatch.setattr(APIView, "initial", initial)
    monkeypatch.setattr(audit, "note_refusal", lambda *args, **kwargs: None)


People = Callable[[int], list[Person]]


def asked_of_site(client: APIClient, method: str, path: str) -> int:
    return int(client.generic(method, path, "{}", content_type="application/json").status_code)


def answered(method: str, path: str, person: Person) -> int:
    """The status of the view's own answer, without the middleware around it."""
    request = APIRequestFactory().generic(method, path, "{}", content_type="application/json")
    force_authenticate(request, person.user)
    request.resolver_match = match = resolve(path)
    return int(match.func(request, *match.args, **match.kwargs).status_code)


def wrong_answers(world: World, people: People, method: str, path: str) -> Iterator[str]:
    """Where the operation answers a role otherwise than the table says.

    Strangers and those without a role ask the whole site.
    """
    need = OPERATIONS[f"{method} {path}"]
    has_row = "{" in path and need != "process"
    key, cluster = world.row(path.split("/")[0]) if has_row else (None, None)
    address = PREFIX + path.replace("{id}", str(key)).replace("{number}", str(key))
    address = address.replace("{figure}", "flow-diagram")
    status = asked_of_site(APIClient(), method, address)
    if status != (ALLOWED if need == "open" else 401):
        yield f"{method} {address} of a stranger: {status}"
    for person in people(cluster or world.ids["cluster"]):
        if person.role:
            status = answered(method, address, person)
        else:
            status = asked_of_site(world.client(person.user), method, address)
        right = REFUSED if need == "process" else due(need, person, has_row=cluster is not None)
        if status != right:
            yield f"{method} {address} of {person}: {status}, not {right}"


@pytest.mark.slow
@pytest.mark.usefixtures("_stopped_behind_the_door")
def test_every_operation_is_for_whom_the_table_says(world: World) -> None:
    people = cache(world.people)
    wrong = [line for each in operations() for line in wrong_answers(world, people, *each)]
    assert not wrong, "\n".join(wrong[:40])


def test_lists_have_no_row_of_a_cluster_that_one_may_not_see(world: World) -> None:
    """Whatever belongs to a cluster says so by its model; a list of it is empty elsewhere."""
    client = world.client(world.person("operator", "other"))
    for method, path in operations():
        if method != "GET" or path.count("/") != 1 or not path.endswith("/"):
            continue
        if OPERATIONS[f"GET {path}"] != "viewer" or path in ("export/", "models/"):
            continue
        found = client.get(PREFIX + path)
        assert found.status_code == 200, (path, found.content)
        rows = found.json()["results"]
        assert [row for row in rows if path != "clusters/" or row["name"] != "elsewhere"] == [], (
            path
        )
    text = client.get(f"{PREFIX}export/").content.decode()
    assert "elsewhere" in text
    assert "world-serving" not in text
