"""Middleware: logs changes and refusals that no service logged.

Refused are changes that were not made, for any reason, and reads that the user may not do.
"""

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponseBase

from helixweb.access import audit, gate
from helixweb.access.needs import SAFE
from helixweb.common.auth import bearer

# These change nothing of the site; log-ins are logged by the code that makes them.
UNTOLD = frozenset({"settings", "logout", "login", "login-link", "playground-chat"})
MOST_OF_A_PATH = 120
UNAUTHORIZED, FORBIDDEN = 401, 403


def tell_the_rest(get_response: Any) -> Any:
    """Middleware; install it below the one that sets the actor."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        response: HttpResponseBase = get_response(request)
        if _is_news(request, response):
            _tell(request, response)
        return response

    return answer


def _is_news(request: HttpRequest, response: HttpResponseBase) -> bool:
    match = request.resolver_match
    if match is not None and match.url_name in UNTOLD:
        return False
    status = response.status_code
    if status == UNAUTHORIZED:
        return bearer(request) is not None
    if status >= 500 or _is_of_process(request):
        return False
    if request.method in SAFE:
        return status == FORBIDDEN
    return status >= 400 or not getattr(request, "helix_told", False)


def _is_of_process(request: HttpRequest) -> bool:
    """True for requests of agents and coordinators: frequent, and services log what they change."""
    match = request.resolver_match
    return match is not None and match.route.startswith(("api/v1/agent/", "api/v1/coordinator/"))


def _tell(request: HttpRequest, response: HttpResponseBase) -> None:
    name = _operation(request)
    status = response.status_code
    if status == UNAUTHORIZED:
        token = bearer(request) or ""
        known, _, secret = token.partition(".")
        shown = known[:16] if secret else token[:5]
        audit.note_refusal("credential", f"{shown}…", text=f"{name}: {_reason(response)}")
    elif status >= 400:
        audit.note_refusal("request", name, text=f"{status}: {_reason(response)}")
    elif request.user.is_authenticated:
        row_id, cluster_id = _row(request, response)
        audit.note("request", name, "noted", row_id=row_id, cluster_id=cluster_id)


def _row(request: HttpRequest, response: HttpResponseBase) -> tuple[int, int | None]:
    """The row that was changed and its cluster, as the address or the answer names them."""
    match, data = request.resolver_match, getattr(response, "data", None)
    shown = data if isinstance(data, Mapping) else {}
    named = str(match.kwargs.get("pk", "")) if match is not None else ""
    row_id = int(named) if named.isdecimal() else shown.get("id")
    cluster_id = gate.cluster_of_row(match) if match is not None else None
    if cluster_id is None:
        cluster_id = shown.get("cluster")
    known = [one if type(one) is int else None for one in (row_id, cluster_id)]
    return known[0] or 0, known[1]


def _operation(request: HttpRequest) -> str:
    """The method and the name of what was asked; never a path that may hold a secret."""
    match = request.resolver_match
    if match is not None and match.url_name:
        row = match.kwargs.get("pk")
        return f"{request.method} {match.url_name}" + (f" {row}"[:24] if row is not None else "")
    path = "".join(char for char in request.path[:MOST_OF_A_PATH] if char.isprintable())
    return f"{request.method} {path}"


def _reason(response: HttpResponseBase) -> str:
    data = getattr(response, "data", None)
    detail = data.get("detail", "") if isinstance(data, dict) else ""
    return str(detail)[:300] or str(getattr(response, "reason_phrase", ""))
