"""Operations of an OpenAPI document as methods: what they are called, take and answer."""

import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from helixweb.client.generator.types import Schema, annotation, references

PREFIX = "/api/v1/"
# Doors of processes, not of people and scripts.
NOT_OURS = ("agent", "coordinator")
METHODS = ("get", "post", "put", "patch", "delete")
_ON_ROWS = {
    "post": "create",
    "put": "replace_many",
    "patch": "update_many",
    "delete": "delete_many",
}
_ON_ROW = {"get": "get", "put": "replace", "patch": "update", "delete": "delete"}
_HEADERS = {"Idempotency-Key": "idempotency_key", "If-Match": "if_match"}
_JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of the client. Types are expressions; None: there is none."""

    resource: str
    name: str
    method: str
    path: str
    about: str
    path_arguments: tuple[tuple[str, str], ...]
    query: tuple[tuple[str, str, bool], ...]  # name, type, whether it must be given
    joined: tuple[str, ...]  # of these, lists that are written with commas
    headers: tuple[str, ...]
    body: str | None
    body_required: bool
    answer: str | None
    rows: str | None  # the type of a row, where the answer is a page of them
    mentions: frozenset[str] = field(default_factory=frozenset)


def operations(document: Schema) -> Iterator[Operation]:
    """Those of people and scripts that speak JSON, in the order of the document."""
    for path, item in document["paths"].items():
        resource = path.removeprefix(PREFIX).partition("/")[0]
        if not path.startswith(PREFIX) or resource in NOT_OURS:
            continue
        shared = item.get("parameters", [])
        present = [method for method in METHODS if method in item]
        for method in present:
            operation = item[method]
            if _speaks_json(operation):
                parameters = [*shared, *operation.get("parameters", [])]
                yield _operation(document, path, method, present, operation, parameters)


def _operation(
    document: Schema,
    path: str,
    method: str,
    present: list[str],
    operation: Schema,
    parameters: list[Schema],
) -> Operation:
    answer = _answer(operation)
    body = operation.get("requestBody", {})
    body_schema = body.get("content", {}).get(_JSON, {}).get("schema")
    return Operation(
        resource=python_name(path.removeprefix(PREFIX).partition("/")[0]),
        name=_method_name(path, method, present),
        method=method.upper(),
        path="/" + path.removeprefix(PREFIX),
        about=operation.get("description") or operation.get("summary") or "",
        path_arguments=tuple(
            (one["name"], annotation(one["schema"])) for one in parameters if one["in"] == "path"
        ),
        query=tuple(
            (one["name"], annotation(one["schema"]), bool(one.get("required")))
            for one in parameters
            if one["in"] == "query"
        ),
        joined=tuple(
            one["name"]
            for one in parameters
            if one["in"] == "query" and one.get("explode") is False
        ),
        headers=tuple(
            one["name"] for one in parameters if one["in"] == "header" and one["name"] in _HEADERS
        ),
        body=annotation(body_schema) if body_schema else None,
        body_required=bool(body.get("required")),
        answer=annotation(answer) if answer else None,
        rows=_rows(document, answer),
        mentions=frozenset([*references(answer), *references(body_schema)]),
    )


def header_argument(name: str) -> str:
    return _HEADERS[name]


def python_name(text: str) -> str:
    """`plan-runs` -> plan_runs; words of the language get an underscore."""
    name = re.sub(r"\W", "_", text)
    return f"{name}_" if keyword.iskeyword(name) else name


def _method_name(path: str, method: str, present: list[str]) -> str:
    words = [word for word in path.removeprefix(PREFIX).split("/")[1:] if word]
    said = [python_name(word) for word in words if not word.startswith("{")]
    if said:
        verb = {"get": "", "post": "post_", "put": "put_", "patch": "patch_", "delete": "delete_"}
        return ("" if len(present) == 1 else verb[method]) + "_".join(said)
    if words:
        return _ON_ROW.get(method, method)
    return _ON_ROWS.get(method, "get")


def _answer(operation: Schema) -> Schema | None:
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            schema: Schema | None = response.get("content", {}).get(_JSON, {}).get("schema")
            return schema
    return None


def _speaks_json(operation: Schema) -> bool:
    contents = [
        response.get("content")
        for status, response in operation["responses"].items()
        if status.startswith("2")
    ]
    asked = operation.get("requestBody", {}).get("content", {_JSON: {}})
    return all(_JSON in content for content in contents if content) and _JSON in asked


def _rows(document: Schema, answer: Schema | None) -> str | None:
    if answer is None or "$ref" not in answer:
        return None
    name = answer["$ref"].rpartition("/")[2]
    if not name.startswith("Paginated"):
        return None
    component: Mapping[str, Any] = document["components"]["schemas"][name]
    return annotation(component["properties"]["results"]["items"])
