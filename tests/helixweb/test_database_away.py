"""A database that does not answer, and changes of many rows that let others write."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError, connection, transaction
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from helixweb.common.batches import REST_S, SIZE, delete_in_batches, in_batches
from helixweb.common.models import Event
from tests.helixweb.looking import answered, shows

AWAY = [
    OperationalError("server closed the connection unexpectedly"),
    OperationalError("database is locked"),
    InterfaceError("connection already closed"),
]


@contextmanager
def failing(error: Exception) -> Iterator[None]:
    """Every question for clusters is answered with `error`."""

    def execute(run: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "inventory_cluster" in sql:
            raise error
        return run(sql, params, many, context)

    with connection.execute_wrapper(execute):
        yield


@pytest.mark.parametrize("error", AWAY, ids=str)
def test_api_and_pages_say_when_to_retry(api: APIClient, browser: Client, error: Exception) -> None:
    browser.raise_request_exception = False
    for client, path, kind in (
        (api, "/api/v1/clusters/", "application/problem+json"),
        (browser, reverse("clusters"), "text/html; charset=utf-8"),
    ):
        with failing(error):
            answer = answered(client.get(path), 503)
        assert answer.headers["Retry-After"] == "2"
        assert answer.headers["Content-Type"] == kind
        shows(answer, "The database does not answer")


def test_a_wrong_query_is_a_fault_of_the_site(api: APIClient, browser: Client) -> None:
    with failing(OperationalError("no such table: inventory_cluster")):
        for client, path in ((api, "/api/v1/clusters/"), (browser, reverse("clusters"))):
            client.raise_request_exception = False
            assert client.get(path).status_code == 500


def write_events(count: int) -> None:
    Event.objects.bulk_create(
        Event(topic="cluster:1", type="event", data={"number": number}) for number in range(count)
    )


@pytest.mark.django_db
def test_every_row_is_changed_once_and_a_rest_follows_every_batch_but_the_last() -> None:
    write_events(3 * SIZE - 1)
    batches: list[int] = []
    rests_s: list[float] = []
    in_batches(
        Event.objects.all(),
        key="id",
        change=lambda batch: batches.append(batch.update(type="seen")),
        rest=rests_s.append,
    )
    assert batches == [SIZE, SIZE, SIZE - 1]
    assert Event.objects.filter(type="seen").count() == 3 * SIZE - 1
    assert rests_s == [REST_S] * 2


@pytest.mark.django_db(transaction=True)
def test_others_can_write_while_it_rests() -> None:
    write_events(SIZE + 1)
    written = []

    def write(_: float) -> None:
        assert not connection.in_atomic_block
        with transaction.atomic():
            written.append(Event.objects.create(topic="cluster:2", type="event").pk)

    delete_in_batches(Event.objects.filter(topic="cluster:1"), key="pk", rest=write)
    assert list(Event.objects.values_list("pk", flat=True)) == written
    assert len(written) == 1
