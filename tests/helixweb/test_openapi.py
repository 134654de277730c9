"""The OpenAPI document: without a warning, and readable offline; what is said of every address."""

import json
import re
from importlib.resources import files
from typing import Any

import pytest
from csp.constants import SELF
from csp.utils import build_policy
from django.contrib.staticfiles import finders
from django.test import Client
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.renderers import OpenApiJsonRenderer
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from rest_framework.test import APIClient

from helixweb.common.rest import docs
from tests.helixweb.looking import answered, tight
from tests.helixweb.rest_collections import openapi_document

pytestmark = pytest.mark.django_db


@pytest.fixture
def document() -> dict[str, Any]:
    return openapi_document()


def operations(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{method.upper()} {path}", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


@pytest.mark.slow
def test_it_is_made_without_a_warning_and_is_valid(document: dict[str, Any]) -> None:
    """As `manage.py spectacular --fail-on-warn --validate` does, which would make it again, and
    would look for each anchor of the rules of OpenAPI in all of them."""
    assert not GENERATOR_STATS
    text = files("drf_spectacular.validation").joinpath("openapi_3_1_schema.json").read_text()
    rules = Resource.from_contents(json.loads(text))
    known = Registry().with_resource("rules", rules).crawl()
    plain = json.loads(OpenApiJsonRenderer().render(document))
    Draft202012Validator({"$ref": "rules"}, registry=known).validate(plain)
    assert "/api/v1/clusters/import/" in document["paths"]


def test_it_is_of_openapi_3_1_and_operations_say_what_they_do(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    ids = [operation["operationId"] for _, operation in operations(document)]
    assert len(ids) == len(set(ids)) >= 80
    silent = [name for name, operation in operations(document) if not operation.get("description")]
    assert not silent


def test_it_says_of_requests_what_is_refused(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    asked_for = {
        name
        for _, operation in operations(document)
        for name in re.findall(r"schemas/(\w+)", str(operation.get("requestBody")))
        if schemas[name].get("type") == "object"
    }
    assert len(asked_for) > 40
    assert not [name for name in asked_for if schemas[name].get("additionalProperties", True)]
    link = schemas["LinkRequest"]["properties"]
    assert link["bandwidth_bytes_per_s"]["exclusiveMinimum"] == link["latency_s"]["minimum"] == 0
    asked = {one["name"]: one["schema"] for one in _parameters(document, "GET /api/v1/nodes/")}
    assert asked["limit"] == {"type": "integer", "minimum": 1, "maximum": 1000}
    assert asked["offset"]["minimum"] == 0
    assert asked["region"]["minLength"] == asked["region__in"]["minItems"] == 1
    assert "minLength" not in asked["q"]


def _parameters(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return dict(operations(document))[name]["parameters"]


def test_long_work_is_answered_with_where_to_look(document: dict[str, Any]) -> None:
    long = {f"POST /api/v1/{what}/" for what in ("plan-runs", "simulations", "model-mixes")}
    found = dict(operations(document))
    for name in (*long, "POST /api/v1/deployments/", "POST /api/v1/plans/{id}/explanation/"):
        assert "Location" in found[name]["responses"]["202"]["headers"], name


def test_the_page_of_the_api_needs_nothing_from_elsewhere(browser: Client) -> None:
    answer = answered(browser.get("/api/docs/"), 200)
    page = tight(answer.content.decode())
    sources = re.findall(r'(?:src|href|data-schema)="([^"]+)"', page)
    assert all(source.startswith(("/", "#")) for source in sources), sources
    ours = [source.removeprefix("/static/") for source in sources if source.startswith("/static/")]
    assert any("swagger-ui-bundle" in source for source in ours)
    assert all(finders.find(source) for source in ours)
    assert "/api/schema/" in page
    assert 'lang="en" aria-busy="true" aria-label="Operations"' in page  # English in any language
    assert "<noscript>" in page
    policy = answer["Content-Security-Policy"]
    assert "unsafe-eval" not in policy
    scripts = re.findall(r"<script(?![^>]*\bsrc=)", page)
    assert not scripts  # nothing inline


def test_without_the_extra_the_page_says_how_to_have_it(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docs, "PAGES", "not_installed")
    page = browser.get("/api/docs/").content.decode()
    assert "helixweb[api-docs]" in page
    assert "swagger-ui" not in page
    assert "/api/schema/?format=json" in page


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


HEADER = "Content-Security-Policy"


def parts(policy: str) -> set[str]:
    return {part.strip() for part in policy.split(";")}


def test_the_apis_answers_have_the_policy(api: APIClient, browser: Client, settings: Any) -> None:
    for path, status in (("/api/v1/nodes/", 200), ("/api/v1/colours/", 404)):
        for _ in range(2):
            answer = api.get(path)
            assert answer.status_code == status
            assert parts(answer[HEADER]) == parts(build_policy()) >= {"script-src 'self'"}
    nonces = [browser.get("/nodes/")[HEADER] for _ in range(2)]
    assert all("'nonce-" in policy for policy in nonces)
    assert nonces[0] != nonces[1]
    settings.CONTENT_SECURITY_POLICY = {"DIRECTIVES": {"default-src": [SELF]}}
    assert api.get("/api/v1/nodes/")[HEADER] == "default-src 'self'"
