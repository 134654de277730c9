"""The one place where pages and the REST API ask whether a user may do something.

What belongs to a cluster that one may not see is not found; what one may see but not do is refused.
A request that passes has `helix_role`, the role that it needs: `scope.py` leaves out rows of
clusters where its user lacks that role, so that no form or body can name them either.
"""

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest
from django.urls import ResolverMatch
from django.utils.translation import gettext as _

from helixweb.access.needs import Need, declared_by, need_of, needs_of, view_named
from helixweb.access.roles import NO_ROLE, Rights, Role
from helixweb.access.scope import cluster_of, rights_of_request


class RoleNeeded(PermissionDenied):
    """The user may not do this; the text says what it needs."""


def admit(
    request: HttpRequest, *, model: Any = None, lookup: str = "pk", argument: str = "pk"
) -> Rights:
    """Let the request pass to its view. Raises RoleNeeded, Http404.

    `model`, `lookup`, `argument`: what a view of the REST API looks up by which argument of the
    URL, unless its `@needs` names a row.
    """
    match = request.resolver_match
    assert match is not None  # noqa: S101 - asked within a view
    need, rights = need_of(match.func, str(request.method)), rights_of_request(request)
    if need.role is None or _enough_on_site(rights, need):
        return rights
    request.helix_role = need.role  # type: ignore[attr-defined]
    if need.of_site:
        raise RoleNeeded(_says(need, _("the whole site")))
    declared = needs_of(match.func)
    if declared.of is not None:
        model, lookup, argument = declared.model, "pk", declared.by
    if model is not None and hasattr(model, "cluster_path") and argument in match.kwargs:
        _check_row(model, {lookup: match.kwargs[argument]}, rights=rights, need=need)
    elif rights.highest < need.role.rank:
        raise RoleNeeded(_says(need, _("a cluster")))
    return rights


def would_admit(request: HttpRequest, view: Any, *, method: str, cluster: int | None) -> bool:
    """True if the user may send the method to the view, on a cluster or, without one, on any.

    `view`: as Django's resolver finds it, or the name of its URL.
    """
    need = need_of(view_named(view) if isinstance(view, str) else view, method)
    rights = rights_of_request(request)
    if need.role is None or _enough_on_site(rights, need):
        return True
    if need.of_site:
        return False
    rank = rights.highest if cluster is None else rights.on(cluster)
    return rank >= need.role.rank


def cluster_of_row(match: ResolverMatch, *, is_cluster: bool = False) -> int | None:
    """The id of the cluster of the row that a URL names; None if there is no such row.

    `is_cluster`: only if that row is the cluster itself.
    """
    declared = declared_by(match.func)
    if declared is None or declared.of is None or declared.by not in match.kwargs:
        return None
    path, pk = getattr(declared.model, "cluster_path", ""), match.kwargs[declared.by]
    if path == "pk":
        return int(pk)
    return None if is_cluster or not path else cluster_of(declared.model, pk=pk)


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
        raise RoleNeeded(_says(need, _("this cluster")))


def _says(need: Need, where: str) -> str:
    role = need.role or Role.VIEWER
    return _("This needs the role %(role)s on %(where)s; ask an administrator for it.") % {
        "role": role.label,
        "where": where,
    }
