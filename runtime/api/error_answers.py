"""Bodies of requests, read up to a size, and failures as error objects of the client's API."""

import difflib
import math
from collections.abc import Mapping
from types import MappingProxyType

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Scope

from runtime.api.events import encoded
from runtime.api.translation import asked_path, translation_of
from runtime.protocol.openai import ApiError

_COMPRESSED = frozenset({"gzip", "x-gzip", "deflate", "br", "zstd", "compress"})
MAX_BODY_BYTES = 8 * 1024 * 1024


def error_response(
    error: ApiError, scope: Scope, headers: Mapping[str, str] = MappingProxyType({})
) -> Response:
    """To the request of `scope`; `headers` beside those that the error itself has."""
    sent = dict(headers)
    if error.status == 401:
        sent["WWW-Authenticate"] = "Bearer"
    if error.retry_after_s is not None:
        sent["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    translation = translation_of(scope)
    body = error.body() if translation is None else translation.refusal(error)
    return Response(
        encoded(body), status_code=error.status, headers=sent, media_type="application/json"
    )


async def _api_error(http: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    return error_response(error, http.scope)


async def _http_error(http: Request, error: Exception) -> Response:
    """Unknown paths and methods, in the same shape as everything else."""
    if not isinstance(error, HTTPException):
        raise error
    message = (
        f"{http.method} {asked_path(http.scope)}: {error.detail.lower()}{_remedy(http, error)}"
    )
    refusal = ApiError(status=error.status_code, message=message, code=None)
    return error_response(refusal, http.scope, error.headers or {})


def _remedy(http: Request, error: HTTPException) -> str:
    if error.status_code == 405:
        return f"; use {(error.headers or {}).get('Allow', 'another')}"
    known = {route.path for route in http.app.routes} if error.status_code == 404 else ()
    near = difflib.get_close_matches(http.url.path[:100], known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


async def _nobody_listens(http: Request, error: Exception) -> Response:
    """The client hung up while it was still sending its request."""
    return Response(status_code=400)


async def _unexpected_error(http: Request, error: Exception) -> Response:
    """Starlette raises it again behind this answer, so the server logs the traceback."""
    return error_response(
        ApiError(
            message="the coordinator failed unexpectedly; its log says why", code="internal_error"
        ),
        http.scope,
    )


EXCEPTION_HANDLERS = {
    ApiError: _api_error,
    ClientDisconnect: _nobody_listens,
    HTTPException: _http_error,
    Exception: _unexpected_error,
}


async def read_body(http: Request) -> bytes:
    """Raises ApiError 413, and 415 for a compressed body."""
    encoding = http.headers.get("content-encoding", "")
    if encoding.lower() in _COMPRESSED:
        raise ApiError(
            status=415,
            message=f"the request body is compressed ({encoding}), which is not supported; send "
            "it without Content-Encoding",
            code="unsupported_value",
        )
    parts, size = [], 0
    async for part in http.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise ApiError(
                message=f"the request body is larger than {MAX_BODY_BYTES} bytes; shorten it",
                code="request_too_large",
            )
        parts.append(part)
    return b"".join(parts)
