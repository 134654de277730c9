"""Writes what happened to people, keys and roles, and what was refused, into the change log.

The log's rows are the inventory's, which is above this app; they are found by name.
"""

from collections.abc import Mapping
from typing import Any

from django.apps import apps
from django.core.cache import cache
from django.db.models import Model
from django.http import HttpRequest, HttpResponseBase

from helixweb.access import gate
from helixweb.access.needs import SAFE
from helixweb.common.actor import by_whom, current_request
from helixweb.common.auth import bearer, sha256_hex
from helixweb.common.queries import parsed_id

# Refusals of one actor or address that are written down within a minute; more say nothing new.
MOST_REFUSALS = 20
SAME_AGAIN_S = 10
_MINUTE_S = 60

Values = Mapping[str, Any]


# These change nothing of the site; log-ins are logged by the code that makes them.
UNTOLD = frozenset({"settings", "logout", "login", "login-link", "playground-chat"})
MOST_OF_A_PATH = 120
UNAUTHORIZED, FORBIDDEN = 401, 403


def note(
    kind: str,
    name: str,
    action: str,
    *,
    row_id: int = 0,
    cluster_id: int | None = None,
    before: Values | None = None,
    after: Values | None = None,
    text: str = "",
) -> None:
    """One line about what is no row of a cluster's; never a secret in it."""
    if before is not None and after is not None:
        keys = [key for key in after if before.get(key) != after[key]]
        before, after = {key: before.get(key) for key in keys}, {key: after[key] for key in keys}
    clusters = apps.get_model("inventory.Cluster").unscoped
    if cluster_id is not None and not clusters.filter(pk=cluster_id).exists():
        cluster_id = None  # named by an answer that was given again after its cluster had gone
    apps.get_model("inventory.Change").objects.create(
        kind=kind,
        name=_kept(name[:200]),
        action=action,
        row_id=row_id,
        cluster_id=cluster_id,
        before=before,
        after=after,
        text=_kept(text),
        **by_whom(),
    )
    mark_told()


def note_row(row: Model, action: str, **said: Any) -> None:
    """One line about a user, a group or a key."""
    cluster_id = getattr(row, "cluster_id", None)
    note(str(row._meta.model_name), str(row), action, row_id=row.pk, cluster_id=cluster_id, **said)


def _kept(text: str) -> str:
    """The text without NUL, which PostgreSQL cannot store: refusals repeat what was sent."""
    return text.replace("\0", "␀")


def note_refusal(kind: str, name: str, *, text: str) -> None:
    """Log a refused attempt: at most `MOST_REFUSALS` a minute of one actor or address, and the same
    one at most once in `SAME_AGAIN_S`."""
    actor = by_whom()
    who = f"{actor['actor_kind']}:{actor['actor'] or actor['address']}"
    same = sha256_hex(f"{who} {kind} {name} {text}")
    if not cache.add(f"refused:{same}", True, SAME_AGAIN_S):
        return
    key = f"refusals:{sha256_hex(who)}"
    cache.add(key, 0, _MINUTE_S)
    try:
        count = cache.incr(key)
    except ValueError:  # it ran out just now
        cache.set(key, 1, _MINUTE_S)
        count = 1
    if count <= MOST_REFUSALS:
        said = text if count < MOST_REFUSALS else f"{text} (more of this minute is left out)"
        note(kind, name, "refused", text=said)


def mark_told() -> None:
    """The request that is being answered has its line in the log."""
    request = current_request()
    if request is not None:
        request.helix_told = True  # type: ignore[attr-defined]


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
        note_refusal("credential", f"{shown}…", text=f"{name}: {_reason(response)}")
    elif status >= 400:
        note_refusal("request", name, text=f"{status}: {_reason(response)}")
    elif request.user.is_authenticated:
        row_id, cluster_id = _row(request, response)
        note("request", name, "noted", row_id=row_id, cluster_id=cluster_id)


def _row(request: HttpRequest, response: HttpResponseBase) -> tuple[int, int | None]:
    """The row that was changed and its cluster, as the address or the answer names them."""
    match, data = request.resolver_match, getattr(response, "data", None)
    shown = data if isinstance(data, Mapping) else {}
    named = str(match.kwargs.get("pk", "")) if match is not None else ""
    row_id = parsed_id(named) or shown.get("id")
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
