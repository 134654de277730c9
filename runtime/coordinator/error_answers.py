"""Every failure of the HTTP face as an OpenAI error object."""

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from runtime.coordinator.answering import retry_header
from runtime.coordinator.refusals import NeverFits, NotServing, QueueFull
from runtime.protocol.openai import ApiError

NOT_READY_RETRY_S = 2.0


def refused(error: NotServing | QueueFull | NeverFits) -> ApiError:
    """Why the dispatcher does not take a request."""
    if isinstance(error, NotServing):
        return ApiError(
            status=503,
            message=str(error),
            code="not_ready",
            type_="server_error",
            retry_after_s=NOT_READY_RETRY_S,
        )
    if isinstance(error, QueueFull):
        return ApiError(
            status=429,
            message=str(error),
            code="queue_full",
            type_="rate_limit_error",
            retry_after_s=error.retry_after_s,
        )
    return ApiError(status=400, message=str(error), code="kv_capacity_exceeded")


async def _api_error(http: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    return JSONResponse(error.body(), status_code=error.status, headers=retry_header(error))


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
    body = ApiError(
        status=500,
        message="the coordinator failed unexpectedly; its log says why",
        code="internal_error",
        type_="server_error",
    ).body()
    return JSONResponse(body, status_code=500)


EXCEPTION_HANDLERS = {
    ApiError: _api_error,
    ClientDisconnect: _nobody_listens,
    HTTPException: _http_error,
    Exception: _unexpected_error,
}
