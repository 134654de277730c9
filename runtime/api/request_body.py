"""Reads the body of a request, up to a size."""

from starlette.requests import Request

from runtime.protocol.openai import ApiError

MAX_BODY_BYTES = 8 * 1024 * 1024


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
