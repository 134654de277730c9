"""Errors of the REST API as RFC 9457 problem documents."""

import logging
from collections.abc import Iterator
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db import IntegrityError, InterfaceError, OperationalError
from django.http import Http404, HttpResponse, JsonResponse
from rest_framework import exceptions

from helixweb.common.refusals import Conflict, NotAdmitted, Refused, Unusable
from helixweb.common.request_ids import request_id_of
from planner import PlannerError

CONTENT_TYPE = "application/problem+json"
# Most errors in one answer, however many a request has.
MOST_ERRORS = 1000
# What to do about refusals that REST's views word.
_REMEDIES: dict[type[Exception], str] = {
    exceptions.MethodNotAllowed: "Use {}.",
    exceptions.NotAcceptable: "Accept {}.",
    exceptions.UnsupportedMediaType: "Send {}.",
}
LONGEST_NAME = 200

if TYPE_CHECKING:  # services import this module; only REST needs REST's views
    from rest_framework.response import Response

logger = logging.getLogger(__name__)


class TooLarge(exceptions.APIException):
    """A body longer than anything of ours needs."""

    status_code = 413
    default_detail = (
        f"The body has more than {settings.DATA_UPLOAD_MAX_MEMORY_SIZE:,} bytes; send less at once."
    )
    default_code = "too_large"


class DatabaseAway(exceptions.APIException):
    """The database is restarting, unreachable, or locked for too long."""

    status_code = 503
    default_detail = (
        "The database does not answer, so nobody knows whether anything was changed. Look, and ask "
        "again, in a few seconds; if that does not help, see the log of the site."
    )
    default_code = "database_away"
    wait = 2  # seconds


def is_database_away(error: BaseException | None) -> bool:
    """Whether `error` says so. That a table is missing is no such thing."""
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    words = str(error)
    return not words.startswith(("no such", "near "))


def exception_handler(error: Exception, context: dict[str, Any]) -> "Response | None":
    """Turn what a view raised into a problem document; None lets a bug surface as a 500."""
    from rest_framework.response import Response
    from rest_framework.views import set_rollback

    if isinstance(error, Http404 | exceptions.NotFound):
        error = _not_found(str(error), context["request"].path)
    elif isinstance(error, PermissionDenied):
        error = exceptions.PermissionDenied()
    elif isinstance(error, RequestDataTooBig):
        error = TooLarge()
    elif isinstance(error, Refused):
        error = _answer_to(error)
    elif isinstance(error, PlannerError):
        error = exceptions.ValidationError({"detail": [str(error)]})
    elif isinstance(error, IntegrityError):
        logger.exception("%r: somebody else was faster, or this is a bug", context["request"].path)
        error = _answer_to(
            Conflict(
                "Another request made, changed or removed the same at the same moment, so nothing "
                "was done; look, and send it again."
            )
        )
    elif is_database_away(error):
        logger.error("%r: %s", context["request"].path, error)
        error = DatabaseAway()
    if not isinstance(error, exceptions.APIException):
        return None
    set_rollback()
    if remedy := _REMEDIES.get(type(error)):
        words = remedy.format(", ".join(_allowed(context["view"], error)))
        error.detail = exceptions.ErrorDetail(f"{error.detail} {words}", error.default_code)
    document = problem(error)
    if request_id := request_id_of(context["request"]._request):
        document["request_id"] = request_id
    status, headers = error.status_code, _headers_of(error)
    return Response(document, status=status, headers=headers, content_type=CONTENT_TYPE)


def _not_found(words: str, path: str) -> exceptions.NotFound:
    """In words of our own where Django and REST's views say no more than that."""
    if not words or words.endswith(("Not found.", "matches the given query.")):
        words = f"There is nothing at {_short(path)} that you may see."
    return exceptions.NotFound(words)


def _allowed(view: Any, error: exceptions.APIException) -> list[str]:
    if isinstance(error, exceptions.MethodNotAllowed):
        return list(view.allowed_methods)
    is_of_body = isinstance(error, exceptions.UnsupportedMediaType)
    kinds = view.get_parsers() if is_of_body else view.get_renderers()
    return [kind.media_type for kind in kinds]


def plain_answer(path: str, error: exceptions.APIException) -> HttpResponse:
    """The answer to what no view of the REST API refuses: the problem document below /api/, else
    text."""
    status, headers = error.status_code, _headers_of(error)
    if path.startswith("/api/"):
        document = problem(error)
        return JsonResponse(document, status=status, headers=headers, content_type=CONTENT_TYPE)
    text = "text/plain; charset=utf-8"
    return HttpResponse(problem(error)["detail"], status=status, headers=headers, content_type=text)


def _headers_of(error: exceptions.APIException) -> dict[str, str]:
    found = {}
    if getattr(error, "auth_header", None):
        found["WWW-Authenticate"] = error.auth_header  # type: ignore[attr-defined]
    if getattr(error, "wait", None):
        found["Retry-After"] = str(int(error.wait))  # type: ignore[attr-defined]
    return found


def status_of(kind: type[Refused]) -> int:
    """The HTTP status of what services refuse."""
    if issubclass(kind, NotAdmitted):
        return 403
    return 422 if issubclass(kind, Unusable) else 409


def _answer_to(refused: Refused) -> exceptions.APIException:
    detail: Any = list(refused.reasons) if refused.listed else str(refused)
    answer = exceptions.APIException(detail, code=refused.default_code)
    answer.status_code, answer.default_code = status_of(type(refused)), refused.default_code
    return answer


def problem(error: exceptions.APIException) -> dict[str, Any]:
    """The document: type, title, status, detail, and one entry per bad field under `errors`."""
    is_of_fields = isinstance(error.detail, dict | list)
    fields = _told(error.detail) if is_of_fields else []
    detail = "; ".join(
        f"{name}: {text}" if name not in ("", "detail") else text for name, text in fields
    )
    codes = None if is_of_fields else error.get_codes()
    document: dict[str, Any] = {
        "type": f"about:blank#{codes if isinstance(codes, str) else error.default_code}",
        "title": HTTPStatus(error.status_code).phrase,
        "status": error.status_code,
        "detail": detail or str(error.detail),
    }
    if fields:
        document["errors"] = [{"field": name, "message": text} for name, text in fields]
    return document


def _told(detail: Any) -> list[tuple[str, str]]:
    """The first errors, and whether there are more."""
    every = _fields(detail, "")
    errors = list(islice(every, MOST_ERRORS))
    if next(every, None) is not None:
        errors.append(("…", "There are more errors; correct these first, and send it again."))
    return errors


def _fields(detail: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(detail, dict):
        for key, value in detail.items():
            name = "" if key == "non_field_errors" else _short(str(key))
            yield from _fields(value, f"{path}.{name}".strip("."))
    elif isinstance(detail, list):
        for index, value in enumerate(detail):
            nested = isinstance(value, dict | list)
            yield from _fields(value, f"{path}[{index}]" if nested else path)
    else:
        yield path, str(detail)


def _short(name: str) -> str:
    """A name that a client sent, cut to `LONGEST_NAME`."""
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"
