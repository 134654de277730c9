"""Additions to the OpenAPI document: headers, API keys, and error answers."""

from collections.abc import Iterator
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension, OpenApiSerializerExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter

from helixweb.common.problems import CONTENT_TYPE
from helixweb.common.rest import idempotency
from helixweb.common.rest.lists import FIELDS, SEARCH, shown_fields
from helixweb.common.rest.negotiation import ByAccept
from helixweb.common.rest.views import RestMixin
from helixweb.common.rest.viewsets import (
    CreateViewSet,
    EditViewSet,
    ReadViewSet,
    UpdateViewSet,
    VersionedViewSet,
    documented_batch,
)


def _header(name: str, text: str, schema: Any = OpenApiTypes.STR, **more: Any) -> OpenApiParameter:
    return OpenApiParameter(name, schema, OpenApiParameter.HEADER, description=text, **more)


IF_NONE_MATCH = _header(
    "If-None-Match",
    "An ETag that the client has: the answer is 304 if what is there is still that.",
)
IF_MATCH = _header(
    "If-Match",
    "The ETag of what was read: the answer is 412, and nothing is done, if the row was edited "
    "since.",
)
ETAG = _header(
    "ETag",
    "Which version of the row or list this is, for If-None-Match; a row's for If-Match too.",
    response=[200, 201],
)
IDEMPOTENCY_KEY = _header(
    idempotency.HEADER,
    "Any text of your own, such as a UUID. The same request with the same key within 24 hours gets "
    "the same answer, and nothing is done twice.",
    {"type": "string", "maxLength": idempotency.MAX_KEY_LENGTH, "pattern": "^[!-~]+$"},
)
REPLAYED = _header(
    idempotency.REPLAYED,
    "The answer is that of the first request with this Idempotency-Key.",
    {"type": "string", "enum": ["true"]},
    response=[200, 201, 202],
)
LOCATION = _header("Location", "Where to look how far it is.", OpenApiTypes.URI, response=[202])


class StrictFields(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """Marks schemas that refuse unknown fields."""

    target_class = "helixweb.common.serializers.StrictFieldsMixin"
    match_subclasses = True

    def map_serializer(self, auto_schema: AutoSchema, direction: Any) -> dict[str, Any]:
        plain: Any = auto_schema._map_serializer
        schema: dict[str, Any] = plain(self.target, direction, bypass_extensions=True)
        return schema | {"additionalProperties": False} if direction == "request" else schema


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "helixweb.common.auth.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "hlx_<key>.<secret>"}


class RestSchema(AutoSchema):
    """drf-spectacular's, and the headers that the view's base class understands."""

    def get_override_parameters(self) -> list[Any]:
        view, action = self.view, getattr(self.view, "action", None)
        parameters = list(super().get_override_parameters())
        if isinstance(view, ReadViewSet) and action in ("list", "retrieve"):
            serializer: Any = view.get_serializer_class()
            parameters += [_fields(shown_fields(serializer)), IF_NONE_MATCH, ETAG]
        if isinstance(view, VersionedViewSet) and action in ("destroy", "partial_update"):
            parameters.append(IF_MATCH)
        edits = isinstance(view, CreateViewSet | UpdateViewSet)
        if edits and action in ("create", "partial_update"):
            parameters.append(ETAG)
        if isinstance(view, RestMixin) and self.method == "POST":
            parameters += [IDEMPOTENCY_KEY, REPLAYED, LOCATION]
        return parameters

    def _get_format_parameters(self) -> list[Any]:
        """`?format=`, where it is not refused."""
        if isinstance(self.view, RestMixin) and self.view.content_negotiation_class is ByAccept:
            return []
        found: list[Any] = super()._get_format_parameters()
        return found

    def _insert_field_validators(self, field: Any, schema: dict[str, Any]) -> None:
        """Also add our own validators that have a form in JSON Schema."""
        super()._insert_field_validators(field, schema)  # type: ignore[no-untyped-call]
        for validator in getattr(field, "validators", ()):
            schema.update(getattr(validator, "in_schema", {}))

    def get_request_serializer(self) -> Any:
        batch = self._batch()
        return super().get_request_serializer() if batch is None else batch[0]

    def get_response_serializers(self) -> Any:
        batch = self._batch()
        return super().get_response_serializers() if batch is None else batch[1]

    def _batch(self) -> tuple[Any, Any] | None:
        """The serializers of a batch of this collection's rows; None: this is none."""
        if not isinstance(self.view, EditViewSet) or self.view.action != "batch":
            return None
        serializer: Any = self.view.get_serializer_class()
        return documented_batch(serializer)


def _fields(names: tuple[str, ...]) -> OpenApiParameter:
    return OpenApiParameter(
        FIELDS,
        OpenApiTypes.STR,
        many=True,
        enum=names,
        explode=False,
        style="form",
        description="Show these fields of each row only; the others are left out.",
    )


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
    401: "No session, known key or credential was sent.",
    403: "The user or key may not do this.",
    404: "There is no such row, or nothing to show of it.",
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
