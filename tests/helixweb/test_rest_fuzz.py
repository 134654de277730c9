"""Made-up requests to the REST API, by everybody: never a 5xx, and every answer as documented."""

import copy
import itertools
import random
from collections.abc import Callable, Iterator
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
from schemathesis.core.parameters import ParameterLocation

from helixweb.common.api_keys import create_api_key
from helixweb.planning.presentation import FIGURES
from tests.generated_requests import STRICT_CHECKS, Tally, attack, cover
from tests.helixweb.accepted_requests import Accepted
from tests.helixweb.everything import NAME, make_world
from tests.helixweb.looking import answered
from tests.helixweb.rest_collections import collections, openapi_document

PREFIX = "/api/v1/"
NO_ROW = 999_999
NOBODY = "Bearer hlx_nobody.knows"
# Rows are named by number under these keys.
COLLECTIONS = {
    "cluster": "clusters", "model": "models", "plan": "plans", "start_plan": "plans",
    "running_plan": "plans", "nodes": "nodes", "rule": "alert-rules",
    "channels": "alert-channels", "channel": "alert-channels",
}  # fmt: skip
# This site has no folder of models; tests/helixweb/test_pinned_weights.py reads files of one.
NO_FILES = {"GET /api/v1/agent/weights/{model}/resolve/{revision}/{file}"}
# What is deleted is ended, and stays to be looked at.
ENDED = ("api-keys", "join-tokens", "profilings")


class Site:
    """A world of everything, asked by an admin, by keys of less scope, by processes and by nobody.

    Nothing that is asked for is kept, so that all requests meet the same rows.
    """

    def __init__(self, world: dict[str, Any]) -> None:
        admin = get_user_model().objects.get(username=world["user"])
        reader = create_api_key(name="reads", user=admin, scopes=["read"]).secret
        everything = create_api_key(name="all", user=admin, scopes=["read", "write", "admin"])
        self.admin = f"Bearer {everything.secret}"
        self.processes = {"agent": world["agent"], "coordinator": world["coordinator"]}
        self.others = (f"Bearer {reader}", NOBODY, "", *self.processes.values())
        self.world = world
        self.closed: set[str] = set()
        self.app = WSGIHandler()
        self.client = httpx.Client(
            base_url="http://127.0.0.1",
            transport=httpx.WSGITransport(app=self.app),
            headers={"Authorization": self.admin},
        )
        self.accepted = Accepted(world, self._documents())
        names = sorted(address.removeprefix(PREFIX).strip("/") for address in collections())
        self.rows = {name: self._numbers(name) for name in (*names, "sessions")}
        self.rows["figures"] = sorted(FIGURES)

    def _documents(self) -> dict[str, Any]:
        """What the site exports, for it to import."""
        addresses = {
            "profile": f"profiles/{self.world['spare_profile']}/export/",
            "inventory": f"export/?cluster={self.world['spare']}&format=json",
        }
        answers = {what: self.client.get(PREFIX + path) for what, path in addresses.items()}
        assert {answer.status_code for answer in answers.values()} == {200}
        return {what: answer.json() for what, answer in answers.items()}

    def _numbers(self, collection: str) -> list[Any]:
        answer = answered(self.client.get(f"{PREFIX}{collection}/?limit=1000"), 200)
        rows = answer.json()["results"]
        return [row.get("id", row.get("request")) for row in rows] or [NO_ROW]

    def send(self, case: schemathesis.Case, dice: random.Random) -> schemathesis.Response:
        self._name_rows(case, dice)
        self._start_from_accepted(case, dice)
        cache.clear()  # nobody is throttled for what others did
        return self._ask(case, self._who(case, dice))

    def _ask(self, case: schemathesis.Case, who: str) -> schemathesis.Response:
        headers = {"Authorization": who} if who else {}
        with transaction.atomic():
            response = case.call(base_url="http://127.0.0.1", app=self.app, headers=headers)
            transaction.set_rollback(True)
        return response

    def needs_to_know_who_asks(self, _context: Any, response: Any, case: Any) -> None:
        """Schemathesis's `ignored_auth`, once an operation: what somebody got, nobody gets."""
        operation = case.operation
        if not 200 <= response.status_code < 300 or operation.label in self.closed:
            return
        if {} in operation.definition.raw.get("security", [{}]):
            return
        for who in ("", NOBODY):
            answer = self._ask(case, who)
            assert answer.status_code == 401, f"{who!r} is answered {answer.status_code}"
        self.closed.add(operation.label)

    def _who(self, case: schemathesis.Case, dice: random.Random) -> str:
        if dice.random() < 0.1:
            return dice.choice(self.others)
        return self.processes.get(case.path.removeprefix(PREFIX).split("/")[0], self.admin)

    def _start_from_accepted(self, case: schemathesis.Case, dice: random.Random) -> None:
        """Half of what the document allows is what is accepted, with some of it changed."""
        if case.meta is None or not case.meta.generation.mode.is_positive or dice.random() < 0.5:
            return
        operation = f"{case.method} {case.path.removeprefix(PREFIX)}"
        known = self.accepted
        case.path_parameters |= known.rows.get(operation, {})
        needed = {one.name for one in case.operation.query if one.is_required}
        few = {name: value for name, value in case.query.items() if dice.random() < 0.2}
        case.query = {
            **{name: value for name, value in case.query.items() if name in needed},
            **few,
            **known.queries.get(operation, {}),
        }
        case.headers.pop("If-Match", None)
        if operation in known.bodies and isinstance(case.body, dict):
            changed = {key: value for key, value in case.body.items() if dice.random() < 0.1}
            case.body = copy.deepcopy(known.bodies[operation]) | changed

    def refused_of_accepted(self) -> list[str]:
        """What stands in the table of accepted requests, and is not."""
        refused = []
        for operation in sorted({*self.accepted.bodies, *self.accepted.rows}):
            method, path = operation.split(" ")
            name = path.split("/")[0]
            row = {"id": self.rows[name][0]} if "{id}" in path else {}
            path = path.format(**row | self.accepted.rows.get(operation, {}))
            with transaction.atomic():
                answer = self.client.request(
                    method,
                    PREFIX + path,
                    json=self.accepted.bodies.get(operation),
                    headers={"Authorization": self.processes.get(name, self.admin)},
                )
                transaction.set_rollback(True)
            if answer.status_code >= 300:
                refused.append(f"{operation}: {answer.status_code} {answer.text[:300]}")
        return refused

    def _name_rows(self, case: schemathesis.Case, dice: random.Random) -> None:
        """Mostly rows that there are: by lot alone hardly one would be met."""
        parts = case.path.removeprefix(PREFIX).split("/")
        for part, value in itertools.pairwise(parts):
            named = value.startswith("{") and not _is_wrong(case, ParameterLocation.PATH)
            if named and dice.random() < 0.8:
                case.path_parameters[value.strip("{}")] = dice.choice(self.rows.get(part, [NO_ROW]))
        for place, holder in (
            (ParameterLocation.QUERY, case.query),
            (ParameterLocation.BODY, case.body),
        ):
            if isinstance(holder, dict) and not _is_wrong(case, place):
                for key in holder.keys() & COLLECTIONS.keys():
                    if dice.random() < 0.4:
                        row = dice.choice(self.rows[COLLECTIONS[key]])
                        holder[key] = [row] if isinstance(holder[key], list) else row

    def still_answers(self) -> None:
        cluster = self.world["cluster"]
        answer = self.client.get(f"{PREFIX}clusters/{cluster}/")
        assert (answer.status_code, answer.json()["name"]) == (200, f"{NAME}-serving")


def _is_wrong(case: schemathesis.Case, place: ParameterLocation) -> bool:
    """Whether it was made to be refused for what stands there."""
    return case.meta is not None and case.meta.is_negative_at(place)


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


@contextmanager
def site() -> Iterator[tuple[Site, dict[str, Any]]]:
    """A site, and what its OpenAPI document says of all that is looked at here."""
    document = copy.deepcopy(openapi_document())
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
    world = make_world()
    with connection_kept():
        yield Site(world), document


def fuzz(make_up: Callable[..., Tally], **how: Any) -> Tally:
    with site() as (asked, document):
        tally = make_up(
            document,
            send=asked.send,
            between=asked.still_answers,
            checks=[*STRICT_CHECKS, asked.needs_to_know_who_asks],
            **how,
        )
    print(tally.line())
    return tally


@pytest.mark.django_db
@pytest.mark.usefixtures("time_stands_still")
def test_what_made_up_requests_start_from_is_accepted() -> None:
    with site() as (asked, _document):
        refused = asked.refused_of_accepted()
    assert not refused, "\n".join(refused)


@pytest.mark.django_db
@pytest.mark.usefixtures("time_stands_still")
def test_a_row_is_there_once_it_is_made_and_gone_once_it_is_deleted() -> None:
    """Schemathesis's `ensure_resource_availability` and `use_after_free`."""
    wrong, seen = [], 0
    with site() as (asked, document):
        for operation, body in asked.accepted.bodies.items():
            collection = f"{PREFIX}{operation.removeprefix('POST ')}"
            address = f"{collection}{{id}}/"
            if "delete" not in document["paths"].get(address, {}):
                continue
            seen += 1
            row = address.format(id=asked.client.post(collection, json=body).json()["id"])
            answers = [
                asked.client.request(method, row).status_code for method in ("GET", "DELETE", "GET")
            ]
            name = operation.removeprefix("POST ").strip("/")
            if answers != [200, 204, 200 if name in ENDED else 404]:
                wrong.append(f"{row}: {answers}")
    assert not wrong, "\n".join(wrong)
    assert seen > 12


# Two halves, each short enough to be waited for.
@pytest.mark.fuzz
@pytest.mark.django_db
@pytest.mark.usefixtures("time_stands_still")
@pytest.mark.parametrize("seed", [2, 3])
def test_ten_thousand_requests_do_not_break_the_rest_api(seed: int) -> None:
    tally = fuzz(attack, requests=5_000, seed=seed)
    print(tally.table())
    assert not tally.faults, tally.report()
    assert tally.requests >= 5_000
    assert tally.never_accepted() <= NO_FILES


@pytest.mark.fuzz
@pytest.mark.django_db
@pytest.mark.usefixtures("time_stands_still")
def test_what_the_document_bounds_is_bounded() -> None:
    tally = fuzz(cover, seed=1, part=slice(0, None, 6))
    assert not tally.faults, tally.report()
    assert tally.requests > 2_500
