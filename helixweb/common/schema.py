"""What the OpenAPI document says beyond serializers: API keys, and how requests are refused."""

from collections.abc import Iterator
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema

from helixweb.common.problems import CONTENT_TYPE
from helixweb.common.rest.lists import SEARCH


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "helixweb.common.auth.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "hlx_<key>.<secret>"}


PROBLEM: dict[str, Any] = {
    "type": "object",
    "description": "A refusal as RFC 9457 has it; `errors` name the fields at fault.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
                "required": ["field", "message"],
            },
        },
    },
    "required": ["type", "title", "status", "detail"],
}
_READING = {
    400: "A parameter is not as it must be.",
    401: "Nobody is logged in, and no known key or credential was sent.",
    403: "Whoever asks may not do this.",
    404: "There is no such row, or nothing to tell of it.",
    429: "Too many requests of one person, key or place; Retry-After says when to come again.",
}
_BY_HEADER = {
    "If-Match": (412, "The row was changed since it was read; nothing was done."),
    "Idempotency-Key": (422, "The key came with another request before."),
}
_WRITING = {
    **_READING,
    409: "The state of the row forbids it; the detail says what to do instead.",
    413: "The body is too large.",
    415: "The body is not JSON.",
}


def document_problems(result: dict[str, Any], **hook: Any) -> dict[str, Any]:
    """drf-spectacular's hook: adds to every operation the refusals it may answer with, and that
    no parameter is empty."""
    result["components"]["schemas"]["Problem"] = PROBLEM
    for operations in result["paths"].values():
        for method, operation in operations.items():
            for status, description in _refusals(method, operation):
                operation["responses"].setdefault(
                    str(status),
                    {
                        "description": description,
                        "content": {
                            CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}
                        },
                    },
                )
            for one in operation.get("parameters", ()):
                if one["in"] == "query" and one["name"] != SEARCH:
                    _is_never_empty(one["schema"])
            if "If-None-Match" in _headers(operation):
                unchanged = {"description": "The client has this version of the row already."}
                operation["responses"].setdefault("304", unchanged)
    return result


def _refusals(method: str, operation: dict[str, Any]) -> Iterator[tuple[int, str]]:
    yield from (_READING if method == "get" else _WRITING).items()
    for name in _headers(operation) & _BY_HEADER.keys():
        yield _BY_HEADER[name]


def _is_never_empty(schema: dict[str, Any]) -> None:
    if schema.get("type") == "string" and not schema.keys() & {"enum", "format"}:
        schema.setdefault("minLength", 1)
    if schema.get("type") == "array":
        schema.setdefault("minItems", 1)


def _headers(operation: dict[str, Any]) -> set[str]:
    return {one["name"] for one in operation.get("parameters", ()) if one["in"] == "header"}
