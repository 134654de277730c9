"""Made-up requests to the REST API, by everybody: never a 5xx, and every answer as documented."""

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import schemathesis
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, transaction
from drf_spectacular.generators import SchemaGenerator

from helixweb.common.api_keys import create_api_key
from helixweb.planning.presentation import FIGURES
from tests.e2e.site_world import make_world
from tests.generated_requests import Tally, attack
from tests.helixweb.rest_collections import collections

PREFIX = "/api/v1/"
NO_ROW = 999_999
# Rows are named by number under these keys.
COLLECTIONS = {
    "cluster": "clusters",
    "model": "models",
    "plan": "plans",
    "start_plan": "plans",
    "running_plan": "plans",
    "nodes": "nodes",
    "rule": "alert-rules",
    "channels": "alert-channels",
    "channel": "alert-channels",
}


class Site:
    """A world of everything, asked by an admin, by keys of less scope, by processes and by nobody.

    Nothing that is asked for is kept, so that all requests meet the same rows.
    """

    def __init__(self, world: dict[str, Any]) -> None:
        admin = get_user_model().objects.get(username=world["user"])
        reader = create_api_key(name="reads", user=admin, scopes=["read"]).secret
        everything = create_api_key(name="all", user=admin, scopes=["read", "write", "admin"])
        self.admin = f"Bearer {everything.secret}"
        self.processes = (world["agent"], world["coordinator"])
        self.others = (f"Bearer {reader}", "Bearer hlx_nobody.knows", "", *self.processes)
        self.world = world
        self.app = WSGIHandler()
        self.client = httpx.Client(
            base_url="http://127.0.0.1",
            transport=httpx.WSGITransport(app=self.app),
            headers={"Authorization": self.admin},
        )
        names = sorted(address.removeprefix(PREFIX).strip("/") for address in collections())
        self.rows = {name: self._numbers(name) for name in (*names, "sessions")}
        self.rows["figures"] = sorted(FIGURES)

    def _numbers(self, collection: str) -> list[Any]:
        answer = self.client.get(f"{PREFIX}{collection}/?limit=1000")
        assert answer.status_code == 200, answer.content
        rows = answer.json()["results"]
        return [row.get("id", row.get("request")) for row in rows] or [NO_ROW]

    def send(self, case: schemathesis.Case, dice: random.Random) -> schemathesis.Response:
        self._name_rows(case, dice)
        cache.clear()  # nobody is throttled for what others did
        who = self._who(case, dice)
        headers = {"Authorization": who} if who else {}
        with transaction.atomic():
            response = case.call(base_url="http://127.0.0.1", app=self.app, headers=headers)
            transaction.set_rollback(True)
        return response

    def _who(self, case: schemathesis.Case, dice: random.Random) -> str:
        if dice.random() < 0.15:
            return dice.choice(self.others)
        return dice.choice(self.processes) if _is_for_processes(case.path) else self.admin

    def _name_rows(self, case: schemathesis.Case, dice: random.Random) -> None:
        """Mostly rows that there are: by lot alone hardly one would be met."""
        parts = case.path.removeprefix(PREFIX).split("/")
        for part, value in itertools.pairwise(parts):
            if value.startswith("{") and dice.random() < 0.8:
                case.path_parameters[value.strip("{}")] = dice.choice(self.rows.get(part, [NO_ROW]))
        for holder in (case.query, case.body):
            if isinstance(holder, dict):
                for key in holder.keys() & COLLECTIONS.keys():
                    if dice.random() < 0.8:
                        row = dice.choice(self.rows[COLLECTIONS[key]])
                        holder[key] = [row] if isinstance(holder[key], list) else row

    def still_answers(self) -> None:
        cluster = self.world["cluster"]
        answer = self.client.get(f"{PREFIX}clusters/{cluster}/")
        assert (answer.status_code, answer.json()["name"]) == (200, "fuzz-serving")


def _is_for_processes(path: str) -> bool:
    return path.startswith((f"{PREFIX}agent/", f"{PREFIX}coordinator/"))


@contextmanager
def connection_kept() -> Iterator[None]:
    """As Django's own test client does: the test's transaction is open on it."""
    ends = (request_started, request_finished)
    for signal in ends:
        signal.disconnect(close_old_connections)
    try:
        yield
    finally:
        for signal in ends:
            signal.connect(close_old_connections)


def fuzz(*, requests: int, seed: int) -> Tally:
    document = SchemaGenerator().get_schema(request=None, public=True)
    # Streams have no end; tests of their own read them.
    document["paths"] = {
        path: operations
        for path, operations in document["paths"].items()
        if not path.endswith(("/stream", "/events/"))
    }
    # Parts of rows are not what the schema of a row says; tests of their own look at them.
    for operations in document["paths"].values():
        for operation in operations.values():
            kept = [one for one in operation.get("parameters", ()) if one["name"] != "fields"]
            operation["parameters"] = kept
    world = make_world("fuzz", chat_url="http://127.0.0.1:9")
    with connection_kept():
        site = Site(world)
        tally = attack(
            document, send=site.send, requests=requests, seed=seed, between=site.still_answers
        )
    print(tally.line())
    return tally


@pytest.mark.django_db
def test_no_request_breaks_the_rest_api() -> None:
    tally = fuzz(requests=120, seed=1)
    assert not tally.faults, tally.report()
    assert tally.requests >= 120


@pytest.mark.fuzz
@pytest.mark.django_db
def test_ten_thousand_requests_do_not_break_the_rest_api() -> None:
    tally = fuzz(requests=10_000, seed=2)
    assert not tally.faults, tally.report()
    assert tally.requests >= 10_000
