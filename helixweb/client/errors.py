"""Exceptions of the client. `Problem` is a refusal by the server (RFC 9457)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx


class ClientError(Exception):
    """Base class; the message names the value at fault and the remedy."""


class Unreachable(ClientError):
    """No answer: connection refused or broken, unknown host, timeout."""


class NotTheApi(ClientError):
    """The answer is not from HelixWeb's REST API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """One entry of a problem's `errors`; `field` may be empty."""

    field: str
    message: str


class Problem(ClientError):
    """The server refused the request; subclasses by HTTP status."""

    def __init__(self, answer: httpx.Response, document: Mapping[str, Any]) -> None:
        wait = answer.headers.get("Retry-After", "")
        self.status = answer.status_code
        self.retry_after_s = float(wait) if wait.isdecimal() else None
        self.type = str(document.get("type", ""))
        self.title = str(document.get("title", f"HTTP {self.status}"))
        self.detail = str(document.get("detail", ""))
        self.document = dict(document)
        listed = document.get("errors")
        self.errors = tuple(
            FieldError(field=str(one.get("field", "")), message=str(one.get("message", "")))
            for one in (listed if isinstance(listed, list) else [])
            if isinstance(one, Mapping)
        )
        super().__init__(self.detail or self.title)


class Malformed(Problem):
    """400, 413, 415, 422: a value is invalid; `errors` name the fields."""


class NotAuthenticated(Problem):
    """401: the key is missing, unknown, revoked or expired."""


class NotAllowed(Problem):
    """403: the key or its owner lacks the permission."""


class NotFound(Problem):
    """404: no row with that id, or no such address."""


class Conflict(Problem):
    """409: the state of the row forbids it; `detail` has the remedy."""


class Changed(Conflict):
    """412: the row was changed since it was read; read it again before the next try."""


class TooManyRequests(Problem):
    """429: retry after `retry_after_s` seconds."""


class ServerFailed(Problem):
    """5xx: a fault of the server."""


_BY_STATUS: dict[int, type[Problem]] = {
    400: Malformed,
    401: NotAuthenticated,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    412: Changed,
    413: Malformed,
    415: Malformed,
    422: Malformed,
    429: TooManyRequests,
}


def problem_of(answer: httpx.Response, document: Mapping[str, Any]) -> Problem:
    """The exception for an answer that is no success."""
    kind = ServerFailed if answer.status_code >= 500 else Problem
    return _BY_STATUS.get(answer.status_code, kind)(answer, document)
