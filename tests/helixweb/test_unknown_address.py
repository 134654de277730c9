"""Addresses under /api/v1/ where nothing lives answer as the rest of the API does."""

from typing import Any

import pytest
from rest_framework.test import APIClient

from tests.helixweb.looking import answered
from tests.helixweb.rest_collections import openapi_document


@pytest.mark.parametrize("method", ["get", "post", "put", "patch", "delete"])
@pytest.mark.parametrize("path", ["/api/v1/", "/api/v1/nothing/", "/api/v1/plans/1/nothing/"])
def test_an_unknown_address_is_a_problem_document(api: APIClient, method: str, path: str) -> None:
    answer = answered(getattr(api, method)(path), 404)
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert (problem["status"], problem["title"]) == (404, "Not Found")
    assert problem["detail"] == f"There is nothing at {path}; /api/schema/ lists every address."


def test_a_forgotten_slash_is_named(api: APIClient) -> None:
    answer = answered(api.post("/api/v1/plan-runs", {}), 404)
    assert answer.json()["detail"].endswith("ends with a slash: /api/v1/plan-runs/.")


@pytest.mark.django_db
def test_without_credentials_nothing_is_said_of_what_is_there() -> None:
    assert APIClient().get("/api/v1/nothing/").status_code == 401


def test_every_operation_says_how_it_refuses() -> None:
    for path, operations in openapi_document()["paths"].items():
        for method, operation in operations.items():
            refusals = {"400", "401", "403", "404"} | (
                {"409", "413", "415", "429"} if method != "get" else set()
            )
            assert refusals <= set(operation["responses"]), (method, path)
            refused = operation["responses"]["404"]["content"]
            assert list(refused) == ["application/problem+json"]
