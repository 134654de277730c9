"""What a call of the client raises. `Problem` is a refusal as RFC 9457 has it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class ClientError(Exception):
    """The root; the text is for people and names value and remedy."""


class Unreachable(ClientError):
    """No answer: connection refused, name unknown, timeout, connection broken."""


class NotTheApi(ClientError):
    """Something answered, but not HelixWeb's REST API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """One entry of a problem's `errors`; `field` may be empty."""

    field: str
    message: str


class Problem(ClientError):
    """The server refused; subclasses say how."""

    def __init__(self, *, status: int, document: Mapping[str, Any], retry_after_s: float | None):
        self.status = status
        self.type = str(document.get("type", ""))
        self.title = str(document.get("title", f"HTTP {status}"))
        self.detail = str(document.get("detail", ""))
        self.document = dict(document)
        self.retry_after_s = retry_after_s
        listed = document.get("errors")
        self.errors = tuple(
            FieldError(field=str(one.get("field", "")), message=str(one.get("message", "")))
            for one in (listed if isinstance(listed, list) else [])
            if isinstance(one, Mapping)
        )
        super().__init__(self.detail or self.title)


class Malformed(Problem):
    """400, 413, 415, 422: a value is not as it must be; `errors` name which."""


class NotAuthenticated(Problem):
    """401: no key was sent, or one that is unknown, revoked or expired."""


class NotAllowed(Problem):
    """403: the key or its owner may not do this."""


class NotFound(Problem):
    """404: nothing has that id or name."""


class Conflict(Problem):
    """409: the state of the row forbids it; the detail says what to do instead."""


class Changed(Conflict):
    """412: somebody changed the row since it was read; read it anew and decide again."""


class TooManyRequests(Problem):
    """429: `retry_after_s` says when to come again."""


class ServerFailed(Problem):
    """5xx: not the caller's fault."""


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


def problem_of(
    *, status: int, document: Mapping[str, Any], retry_after_s: float | None = None
) -> Problem:
    """The exception for an answer with `status` of 400 or above."""
    kind = _BY_STATUS.get(status, ServerFailed if status >= 500 else Problem)
    return kind(status=status, document=document, retry_after_s=retry_after_s)
