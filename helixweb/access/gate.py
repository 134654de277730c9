"""The one place where pages and the REST API ask whether somebody may do something.

What belongs to a cluster that one may not see is not found; what one may see but not do is refused.
Whoever passes has `helix_role` on the request: rows of clusters where they lack it are out of reach
from then on (see `scope.py`), so that nothing can be named by a form or a body either.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.apps import apps
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest
from django.urls import ResolverMatch
from django.utils.translation import gettext as _

from helixweb.access.needs import NAMED_IN_BODIES, SAFE, Need, need_of, row_of
from helixweb.access.rights import rights_of_request
from helixweb.access.roles import NO_ROLE, Rights, Role
from helixweb.access.scope import cluster_of

# Ids in one body that are looked up one by one; a list of more is left to the rows in reach.
MOST_NAMED = 50
BIGGEST_ID = 2**63 - 1


class Refused(PermissionDenied):
    """Whoever asks may not do this; the text says what it needs."""


def admit(
    request: HttpRequest, *, model: Any = None, lookup: str = "pk", argument: str = "pk"
) -> Rights:
    """Let the request pass to its view. Raises Refused, Http404.

    `model`, `lookup`, `argument`: what the view looks up by which argument of the URL, where
    `needs.py` does not know.
    """
    match = request.resolver_match
    assert match is not None  # noqa: S101 - asked within a view
    need = need_of(str(match.url_name), str(request.method))
    rights = rights_of_request(request)
    if need.role is None:
        return rights
    if _enough_on_site(rights, need):
        return rights
    request.helix_role = need.role  # type: ignore[attr-defined]
    if need.of_site:
        raise Refused(_says(need, _("the whole site")))
    row = row_of(match.route)
    if row is not None:
        model, lookup, argument = apps.get_model(row.model), "pk", row.argument
    if model is not None and hasattr(model, "cluster_path") and argument in match.kwargs:
        _check_row(model, {lookup: match.kwargs[argument]}, rights=rights, need=need)
    elif rights.highest < need.role.rank:
        raise Refused(_says(need, _("a cluster")))
    return rights


def would_admit(request: HttpRequest, name: str, *, method: str, cluster: int | None) -> bool:
    """Whether the operation is for whoever asks, on a cluster or, without one, on any."""
    need, rights = need_of(name, method), rights_of_request(request)
    if need.role is None or _enough_on_site(rights, need):
        return True
    if need.of_site:
        return False
    rank = rights.highest if cluster is None else rights.on(cluster)
    return rank >= need.role.rank


def cluster_named_by(match: ResolverMatch) -> int | None:
    """The id of the cluster that an address names, if it names one."""
    row = row_of(match.route)
    if row is None or row.model != "inventory.Cluster":
        return None
    return int(match.kwargs[row.argument])


def cluster_of_row(match: ResolverMatch) -> int | None:
    """The id of the cluster whose row an address names, if it names one that is still there."""
    row = row_of(match.route)
    if row is None or row.argument not in match.kwargs:
        return None
    return cluster_of(apps.get_model(row.model), pk=match.kwargs[row.argument])


def check_named(read_body: Callable[[], Any], *, request: HttpRequest) -> None:
    """Rows that a body names must be of clusters where one may do what is asked. Raises Refused.

    What one may not even see is left for the view not to find. The body is only read of those whose
    roles differ from cluster to cluster.
    """
    rights = rights_of_request(request)
    need = need_of(str(getattr(request.resolver_match, "url_name", "")), str(request.method))
    if need.role is None or request.method in SAFE or _enough_on_site(rights, need):
        return
    body = read_body()
    for item in body if isinstance(body, list) else [body]:
        for model, pk in _named(item):
            cluster = cluster_of(apps.get_model(model), pk=pk)
            if cluster is not None and NO_ROLE < rights.on(cluster) < need.role.rank:
                raise Refused(_says(need, _("the cluster of what is named")))


def _named(body: Any) -> Iterable[tuple[str, int]]:
    if not isinstance(body, Mapping):
        return
    for key, model in NAMED_IN_BODIES.items():
        value = body.get(key)
        for pk in value[:MOST_NAMED] if isinstance(value, list) else [value]:
            if isinstance(pk, str) and pk.isascii() and pk.isdigit() and len(pk) < 19:
                pk = int(pk)
            if isinstance(pk, int) and not isinstance(pk, bool) and 0 < pk <= BIGGEST_ID:
                yield model, pk


def _enough_on_site(rights: Rights, need: Need) -> bool:
    if need.role is not None and rights.site >= need.role.rank:
        return True
    return need.or_of_site is not None and rights.site >= need.or_of_site.rank


def _check_row(model: Any, where: Mapping[str, Any], *, rights: Rights, need: Need) -> None:
    try:
        cluster = cluster_of(model, **where)
    except (ValueError, TypeError, OverflowError):
        raise Http404 from None
    if cluster is None or rights.on(cluster) == NO_ROLE:
        raise Http404
    if need.role is not None and rights.on(cluster) < need.role.rank:
        raise Refused(_says(need, _("this cluster")))


def _says(need: Need, where: str) -> str:
    role = need.role or Role.VIEWER
    return _("This needs the role %(role)s on %(where)s; ask an administrator for it.") % {
        "role": role.label,
        "where": where,
    }
