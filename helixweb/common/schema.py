"""What the OpenAPI document says beyond serializers: API keys, and how requests are refused."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema

from helixweb.common.problems import CONTENT_TYPE


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
}
_WRITING = {
    **_READING,
    409: "The state of the row forbids it; the detail says what to do instead.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    429: "Too many requests from one place; Retry-After says when to come again.",
}


def document_problems(result: dict[str, Any], **hook: Any) -> dict[str, Any]:
    """drf-spectacular's hook: adds to every operation the refusals it may answer with."""
    result["components"]["schemas"]["Problem"] = PROBLEM
    for operations in result["paths"].values():
        for method, operation in operations.items():
            for status, description in (_READING if method == "get" else _WRITING).items():
                operation["responses"].setdefault(
                    str(status),
                    {
                        "description": description,
                        "content": {
                            CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}
                        },
                    },
                )
    return result
