"""Rights of users, read once a request: one query for most, none for a superuser.

Row-level tenancy: rows of clusters are read in the scope that the code was given.

A model that belongs to a cluster derives from `InCluster` and names in `cluster_path` where the
cluster is. `Node.objects.within(request)` has the nodes of clusters that the user of the request
may see or, where the request changes something, may change. `Node.unscoped` has those of all
clusters: for work outside of users' requests, and for rows of a row that is in scope. A query set
that has no scope raises `Unscoped` where it would read or change rows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, ClassVar, Self, TypeVar

from django.contrib.auth import get_user_model
from django.db import connection, models
from django.db.models import Q

from helixweb.access.models import Grant
from helixweb.access.roles import EVERYTHING, NOTHING, Rights, Role
from helixweb.common.models import ApiKey

RowT = TypeVar("RowT", bound=models.Model)


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


class Unscoped(RuntimeError):
    """Rows of clusters would be read, and nothing says of which."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The clusters whose rows may be read; None: all."""

    clusters: frozenset[int] | None


WHOLE_SITE = Scope(None)


def scope_of(request: Any, role: str = "") -> Scope:
    """The clusters where the user has `role`; "": the role that the request needs.

    `request` is Django's or the REST framework's. Raises Unscoped without a logged-in user.
    """
    request = getattr(request, "_request", request)
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        raise Unscoped("Rows of clusters are read for a request without a logged-in user.")
    needed = Role(role or getattr(request, "helix_role", Role.VIEWER))
    return Scope(rights_of_request(request).where(needed))


class LightQuerySet(models.QuerySet[RowT]):
    """Reads a model's `large` columns only when they are asked for, of related rows too."""

    def select_related(self, *paths: Any) -> Self:
        rows = super().select_related(*paths)
        for path in paths if paths != (None,) else ():
            model: Any = self.model
            for number, name in enumerate(path.split("__"), start=1):
                model = model._meta.get_field(name).related_model
                at = "__".join(path.split("__")[:number])
                rows = rows.defer(*(f"{at}__{column}" for column in getattr(model, "large", ())))
        return rows


def _scoped(name: str) -> Any:
    """The method of Django's query sets; raises Unscoped without a scope."""
    plain = getattr(models.QuerySet, name)

    @wraps(plain)
    def method(rows: "ScopedQuerySet[Any]", *args: Any, **options: Any) -> Any:
        rows._check_scope()
        return plain(rows, *args, **options)

    return method


class ScopedQuerySet(LightQuerySet[RowT]):
    """Rows limited to a scope: by `within`, or as related rows of a row, as in `cluster.nodes`."""

    _is_scoped = False

    def within(self, scope: Any, role: str = "") -> Self:
        """Rows in a scope, or in that of a request (see `scope_of`)."""
        clusters = (scope if isinstance(scope, Scope) else scope_of(scope, role)).clusters
        rows = self._chain()  # type: ignore[attr-defined]
        if clusters is not None:
            rows = rows.filter(**{f"{self.model.cluster_path}__in": clusters})  # type: ignore[attr-defined]
        rows._is_scoped = True
        return rows  # type: ignore[no-any-return]

    def _check_scope(self) -> None:
        if self._result_cache is not None:
            return  # it was checked before they were read
        owner = self._hints.get("instance")  # type: ignore[attr-defined]
        if not (self._is_scoped or isinstance(owner, InCluster)):
            name = self.model.__name__
            raise Unscoped(
                f"Rows of {name} are read without a scope; take {name}.objects.within(request) "
                f"or, where no user sees them, {name}.unscoped."
            )

    def _clone(self) -> Self:
        clone: Self = super()._clone()  # type: ignore[misc]
        clone._is_scoped = self._is_scoped
        return clone

    # What reads or changes rows, of Django's query sets.
    _fetch_all, count, exists, aggregate = map(
        _scoped, ("_fetch_all", "count", "exists", "aggregate")
    )
    iterator, aiterator, update, delete, _raw_delete = map(
        _scoped, ("iterator", "aiterator", "update", "delete", "_raw_delete")
    )


class LightManager(models.Manager[RowT]):
    """Manager of rows of all clusters."""

    rows: ClassVar[type[LightQuerySet[Any]]] = LightQuerySet

    def get_queryset(self) -> Any:
        rows = self.rows(self.model, using=self._db, hints=getattr(self, "_hints", {}))
        return rows.defer(*self.model.large)  # type: ignore[attr-defined]  # of InCluster


class ScopedManager(LightManager[RowT]):
    """Manager that requires `within` before its rows are read."""

    rows = ScopedQuerySet

    def within(self, scope: Any, role: str = "") -> ScopedQuerySet[RowT]:
        """See `ScopedQuerySet.within`."""
        rows: ScopedQuerySet[RowT] = self.get_queryset().within(scope, role)
        return rows


class InCluster(models.Model):
    """A row that belongs to a cluster."""

    cluster_path: ClassVar[str] = "cluster"
    # Columns that are read only when they are asked for.
    large: ClassVar[tuple[str, ...]] = ()

    objects = ScopedManager()
    unscoped = LightManager()

    class Meta:
        abstract = True

    # The database says what is unique, and services what to do about it.

    def validate_unique(self, exclude: Any = None) -> None:
        return

    def get_constraints(self) -> Any:
        return [
            (model, [one for one in found if not isinstance(one, models.UniqueConstraint)])
            for model, found in super().get_constraints()
        ]


def cluster_of(model: type[models.Model], **where: Any) -> int | None:
    """The cluster of the row; None: there is no such row, or it is of no cluster."""
    path: str = model.cluster_path  # type: ignore[attr-defined]
    rows = model._base_manager.filter(**where)
    found: int | None = rows.values_list(path, flat=True).order_by().first()
    return found
