"""Bodies of requests, read up to a size, and failures of the OpenAI API as error objects."""

import math

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from runtime.protocol.openai import ApiError

MAX_BODY_BYTES = 8 * 1024 * 1024


def error_response(error: ApiError, headers: dict[str, str] | None = None) -> JSONResponse:
    """`headers` beside those that the error itself has."""
    sent = dict(headers or {})
    if error.status == 401:
        sent["WWW-Authenticate"] = "Bearer"
    if error.retry_after_s is not None:
        sent["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    return JSONResponse(error.body(), status_code=error.status, headers=sent)


async def _api_error(http: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    return error_response(error)


async def _http_error(http: Request, error: Exception) -> Response:
    """Unknown paths and methods, in the same shape as everything else."""
    if not isinstance(error, HTTPException):
        raise error
    message = f"{http.method} {http.url.path}: {error.detail.lower()}"
    body = ApiError(status=error.status_code, message=message, code=None).body()
    return JSONResponse(body, status_code=error.status_code, headers=error.headers)


async def _nobody_listens(http: Request, error: Exception) -> Response:
    """The client hung up while it was still sending its request."""
    return Response(status_code=400)


async def _unexpected_error(http: Request, error: Exception) -> Response:
    """Starlette raises it again behind this answer, so the server logs the traceback."""
    return error_response(
        ApiError(
            message="the coordinator failed unexpectedly; its log says why", code="internal_error"
        )
    )


EXCEPTION_HANDLERS = {
    ApiError: _api_error,
    ClientDisconnect: _nobody_listens,
    HTTPException: _http_error,
    Exception: _unexpected_error,
}


async def read_body(http: Request) -> bytes:
    """Raises ApiError 413."""
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
