"""Reads the rights of a user: one query for most, none for a superuser."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from django.contrib.auth import get_user_model
from django.db import connection
from django.db.models import Q

from helixweb.access.models import Grant
from helixweb.access.roles import EVERYTHING, NOTHING, Rights, Role
from helixweb.common.models import ApiKey


def rights_of(user: Any) -> Rights:
    """The highest of a user's own roles and those of their groups, on the site and on clusters."""
    if not user.is_active:
        return NOTHING
    if user.is_superuser:
        return EVERYTHING
    with connection.cursor() as cursor:
        cursor.execute(_held_grants(), [user.pk, user.pk])
        return rights_from(cursor.fetchall())


@cache
def _held_grants() -> str:
    """The statement, compiled once: nearly every request needs it, and compiling takes longer than
    the database does."""
    held = Q(user=0) | Q(group__user=0)
    rows = Grant.objects.filter(held).order_by().values_list("cluster", "role")
    return rows.query.sql_with_params()[0]


def rights_from(rows: Iterable[tuple[Any, ...]]) -> Rights:
    """Rights of one user from rows (cluster or None for the site, role)."""
    site, clusters = 0, dict[int, int]()
    for cluster, role in rows:
        rank = Role(role).rank
        if cluster is None:
            site = max(site, rank)
        else:
            clusters[cluster] = max(clusters.get(cluster, 0), rank)
    return Rights(site=site, clusters=clusters)


def rights_of_request(request: Any) -> Rights:
    """The rights of a request's user; a key has no more than its owner, on its own cluster alone.

    Read once a request. `request` is Django's, on which DRF sets the user that it found.
    """
    user, key = request.user, getattr(request, "auth", None)
    key_pk = key.pk if isinstance(key, ApiKey) else None
    known = getattr(request, "_helix_rights", None)
    if known is not None and known[0] == (user.pk, key_pk):
        found: Rights = known[1]
        return found
    found = rights_of(user)
    if isinstance(key, ApiKey):
        found = found.within(key.cluster_id)
    request._helix_rights = ((user.pk, key_pk), found)
    return found


def is_still_admitted(request: Any) -> bool:
    """True if the user and their key or session are still valid; the rights are read again too.

    The user may have been deactivated, logged out or demoted since the request began.
    """
    key = getattr(request, "auth", None)
    if isinstance(key, ApiKey):
        is_in = ApiKey.objects.filter(pk=key.pk, revoked_at=None).exists()
    else:
        session = request.session.session_key
        is_in = session is None or request.session.exists(session)
    user = get_user_model().objects.filter(pk=request.user.pk, is_active=True).first()
    if user is None or not is_in:
        return False
    request.user, request._helix_rights = user, None
    return True


def people_on(cluster_id: int) -> set[int]:
    """Ids of all users with a role on the cluster, without superusers."""
    there = Grant.objects.filter(Q(cluster=cluster_id) | Q(cluster__isnull=True))
    own = there.filter(user__isnull=False).values_list("user", flat=True)
    by_group = there.filter(group__user__isnull=False).values_list("group__user", flat=True)
    return {*own, *by_group}
