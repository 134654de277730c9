"""A database that does not answer is said to be one; a query that is wrong stays a fault."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError, connection
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

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
def test_the_api_says_when_to_ask_again(api: APIClient, error: Exception) -> None:
    with failing(error):
        answer = api.get("/api/v1/clusters/")
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "2"
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["detail"].startswith("The database does not answer")


@pytest.mark.parametrize("error", AWAY, ids=str)
def test_a_page_says_so_too(browser: Client, error: Exception) -> None:
    browser.raise_request_exception = False
    with failing(error):
        answer = browser.get(reverse("clusters"))
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "2"
    assert "The database does not answer" in answer.content.decode()


def test_a_wrong_query_is_a_fault_of_the_site(api: APIClient, browser: Client) -> None:
    with failing(OperationalError("no such table: inventory_cluster")):
        for client, path in ((api, "/api/v1/clusters/"), (browser, reverse("clusters"))):
            client.raise_request_exception = False
            assert client.get(path).status_code == 500
