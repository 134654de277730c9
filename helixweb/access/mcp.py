"""The Model Context Protocol: every operation of the REST API for people as a tool.

Streamable HTTP without sessions: each POST is one message of JSON-RPC and is answered with JSON. A
tool runs its REST request through the site's own middleware and views, with the key that called
it. So roles, scopes, budgets and the change log apply as if the key had sent it.
"""

import json
import re
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Any
from urllib.parse import quote, urlencode

from django.contrib.auth.models import AbstractBaseUser
from django.core.handlers.base import BaseHandler
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from helixweb.access.needs import OWN, SAFE, needs
from helixweb.common.auth import READ, WRITE, ApiKeyAuthentication, row_of
from helixweb.common.models import ApiKey
from helixweb.common.rest.handler import PREFIX
from helixweb.common.rest.negotiation import ByAccept
from helixweb.versions import product_version

Json = dict[str, Any]

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
METHOD_NOT_FOUND, INVALID_PARAMS, INVALID_REQUEST = -32601, -32602, -32600
_REFERENCE = re.compile(r'"#/\$defs/([^"]+)"')
_JSON = "application/json"


class WrongArguments(Exception):
    """The arguments of a call do not fit the tool; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of the OpenAPI document, and the tool that it is."""

    method: str
    path: str
    parameters: dict[str, Json]  # in the path and in the query, by their names
    has_body: bool
    tool: Json

    def request_for(self, arguments: Json, outer: HttpRequest) -> WSGIRequest:
        """The request that the operation gets. Raises WrongArguments."""
        left = dict(arguments)
        body = json.dumps(left.pop("body")).encode() if self.has_body and "body" in left else b""
        path, query = self.path, {}
        for name, parameter in self.parameters.items():
            if name in left:
                value = _text(left.pop(name), is_exploded=parameter.get("explode", True))
                if parameter["in"] == "query":
                    query[name] = value
                else:
                    path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
        if left or "{" in path:
            wrong = f"does not take {', '.join(left)}" if left else f"needs all that {path} names"
            known = ", ".join([*self.parameters, *["body"] * self.has_body]) or "nothing"
            raise WrongArguments(f"{self.tool['name']} {wrong}; it takes {known}.")
        kept = {name: value for name, value in outer.META.items() if _is_passed_on(name)}
        return WSGIRequest(
            {
                **kept,
                "REQUEST_METHOD": self.method,
                "PATH_INFO": path,
                "QUERY_STRING": urlencode(query, doseq=True),
                "CONTENT_TYPE": _JSON,
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_ACCEPT": _JSON,
                "wsgi.input": BytesIO(body),
                "wsgi.url_scheme": outer.scheme,
            }
        )


class KeyOnly(ApiKeyAuthentication):
    """Authenticates a key without counting a request: the operations that it calls count theirs."""

    def authenticate(self, request: Request) -> tuple[AbstractBaseUser, ApiKey] | None:
        row = row_of(request)
        return None if row is None else (row.user, row)


@needs(None, OWN)
class McpView(APIView):
    """Answers one message."""

    authentication_classes = [KeyOnly]
    permission_classes = [IsAuthenticated]  # each operation asks for itself what the key may do
    content_negotiation_class = ByAccept

    @extend_schema(exclude=True)
    def post(self, request: Request) -> Response:
        request._request.helix_told = True  # type: ignore[attr-defined]  # operations log
        message = request.data
        if not isinstance(message, dict) or not isinstance(message.get("method"), str):
            refusal = _error(INVALID_REQUEST, "Send one JSON-RPC message.")
            return Response({"jsonrpc": "2.0", "id": None, **refusal}, status=400)
        if "id" not in message:  # a notification
            return Response(status=202)
        params = message.get("params")
        answer = _answer(message["method"], params if isinstance(params, dict) else {}, request)
        return Response({"jsonrpc": "2.0", "id": message["id"], **answer})


def _answer(method: str, params: Json, request: Request) -> Json:
    if method == "initialize":
        asked = params.get("protocolVersion")
        return {
            "result": {
                "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "helixweb", "version": product_version()},
            }
        }
    if method == "ping":
        return {"result": {}}
    if method == "tools/list":
        return {"result": {"tools": _tools_for(request.auth)}}
    if method != "tools/call":
        return _error(METHOD_NOT_FOUND, f"There is no method {method[:80]}.")
    operation = operations().get(str(params.get("name")))
    if operation is None:
        return _error(INVALID_PARAMS, f"There is no tool {str(params.get('name'))[:80]}.")
    arguments = {} if params.get("arguments") is None else params["arguments"]
    if not isinstance(arguments, dict):
        refusal = "The arguments of a call are an object of names and values."
        return _error(INVALID_PARAMS, refusal)
    try:
        inner = operation.request_for(arguments, request._request)
    except WrongArguments as error:
        return {"result": _result(str(error), is_error=True)}
    response: Any = _handler().get_response(inner)
    content = b"".join(response) if response.streaming else response.content
    text = content.decode() or f"{response.status_code} {response.reason_phrase}"
    return {"result": _result(text, is_error=response.status_code >= 400)}


def _error(code: int, message: str) -> Json:
    return {"error": {"code": code, "message": message}}


def _result(text: str, *, is_error: bool) -> Json:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _tools_for(key: Any) -> list[Json]:
    """Tools that the key's scopes allow."""
    return [
        operation.tool
        for operation in operations().values()
        if (READ if operation.method in SAFE else WRITE) in key.scopes
    ]


@cache
def operations() -> dict[str, Operation]:
    """Operations by the names of their tools: those that take keys and answer with JSON."""
    generator: Any = SchemaGenerator  # without types
    written = json.dumps(generator().get_schema(request=None, public=True))
    document = json.loads(written.replace("#/components/schemas/", "#/$defs/"))
    schemas = document["components"]["schemas"]
    found = [
        _operation(method.upper(), path, described, schemas)
        for path, methods in document["paths"].items()
        for method, described in methods.items()
        if path.startswith(PREFIX) and _is_tool(described)
    ]
    return {operation.tool["name"]: operation for operation in found}


def _is_tool(described: Json) -> bool:
    answers = [one for status, one in described["responses"].items() if status.startswith("2")]
    bodies = [*answers, described.get("requestBody", {})]
    is_json = all(_JSON in one.get("content", {_JSON: None}) for one in bodies)
    return is_json and {"apiKey": []} in described.get("security", ())


def _operation(method: str, path: str, described: Json, schemas: Json) -> Operation:
    documented = described.get("parameters", ())
    parameters = {one["name"]: one for one in documented if one["in"] in ("path", "query")}
    properties = {
        name: {**one["schema"], "description": one.get("description", "")}
        for name, one in parameters.items()
    }
    required = [name for name, one in parameters.items() if one.get("required")]
    body = described.get("requestBody")
    if body is not None:
        properties["body"] = body["content"][_JSON]["schema"]
        required += ["body"] * bool(body.get("required"))
    schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    tool = {
        "name": described["operationId"],
        "description": described.get("description", ""),
        "inputSchema": _self_contained(schema, schemas),
        "annotations": {
            "readOnlyHint": method in SAFE,
            "destructiveHint": method == "DELETE",
            "idempotentHint": method != "POST",
        },
    }
    return Operation(
        method=method, path=path, parameters=parameters, has_body=body is not None, tool=tool
    )


def _self_contained(schema: Json, schemas: Json) -> Json:
    """The schema with the definitions that it names, directly or by others."""
    definitions: Json = {}
    waiting = [schema]
    while waiting:
        for name in _REFERENCE.findall(json.dumps(waiting.pop())):
            if name not in definitions:
                definitions[name] = schemas[name]
                waiting.append(schemas[name])
    return {**schema, "$defs": definitions} if definitions else schema


def _text(value: object, *, is_exploded: bool) -> object:
    """A parameter's value as it is written in a URL."""
    if isinstance(value, list):
        texts = [str(_text(each, is_exploded=True)) for each in value]
        return texts if is_exploded else ",".join(texts)
    return value if isinstance(value, str) else json.dumps(value)


def _is_passed_on(name: str) -> bool:
    """True for headers and variables of the request that operations get: caller and address."""
    prefixes = ("HTTP_AUTHORIZATION", "HTTP_HOST", "HTTP_X_FORWARDED_", "HTTP_X_REQUEST_ID")
    return name.startswith((*prefixes, "REMOTE_", "SERVER_", "SCRIPT_NAME"))


@cache
def _handler() -> BaseHandler:
    handler = BaseHandler()
    handler.load_middleware(is_async=False)
    return handler
