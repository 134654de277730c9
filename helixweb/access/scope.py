"""Row-level tenancy: a query set of rows of clusters reads only clusters within the reader's reach.

A model that belongs to a cluster derives from `InCluster` and names in `cluster_path` where the
cluster is. Its manager narrows query sets to clusters within reach: those that the user of the
request may see or, once the gate has found that the request changes something, those where the
user may do so.

It fails closed. Code that serves no user's request (a task, a command, a request of an agent or a
coordinator) reads rows of all clusters, but must declare it with `acting_for_site()`, or take
`unscoped()` for one query. Any other query set raises `Unscoped` where it would read the database.
So does one that was narrowed for another request.

A query set that is made with a class, before there is a request, is narrowed by `all()`, which
Django and DRF call on it for each request.
"""

import weakref
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self, TypeVar

from django.db import models
from django.http import HttpRequest

from helixweb.access.rights import rights_of_request
from helixweb.access.roles import Role
from helixweb.common.actor import acts_for_site, current_request

RowT = TypeVar("RowT", bound=models.Model)


class Unscoped(RuntimeError):
    """Rows of clusters would be read without a user or a declaration that says of which."""


def clusters_within_reach() -> frozenset[int] | None:
    """None: all of them. Raises Unscoped where nothing says which."""
    if acts_for_site():
        return None
    request = current_request()
    user = getattr(request, "user", None)
    if request is None or user is None or not user.is_authenticated:
        raise Unscoped(
            "Rows of clusters are read without a logged-in user. Code that serves no user declares "
            "it with helixweb.common.actor.acting_for_site()."
        )
    role: Role = getattr(request, "helix_role", Role.VIEWER)
    return rights_of_request(request).where(role)


class ClusterQuerySet(models.QuerySet[RowT]):
    """Narrowed once, where it is made within a request or `all()` is called there first.

    `_is_scoped`: its rows are narrowed, or declared to be of all clusters. `_is_for_site`: they
    were declared so by `acting_for_site`, which users' requests do not inherit. `_made_in`: the
    request within which it was scoped, if any.
    """

    _is_scoped = False
    _is_for_site = False
    _made_in: Callable[[], HttpRequest | None] | None = None

    def all(self) -> Self:
        return self.narrowed()

    def narrowed(self) -> Self:
        """The same rows, as far as they are within reach; unchanged where nothing says which."""
        rows = super().all()
        if self._is_scoped and (acts_for_site() or not self._is_for_site):
            self.check_scope()
            return rows
        if rows.query.is_sliced:
            return rows
        try:
            clusters = clusters_within_reach()
        except Unscoped:  # raised again if it is evaluated
            return rows
        if clusters is not None:
            path = rows.model.cluster_path  # type: ignore[attr-defined]
            rows = rows.filter(**{f"{path}__in": clusters})
        return rows._scoped()

    def check_scope(self) -> None:
        """Raises Unscoped unless the rows may be read here."""
        request = current_request()
        is_of_another = request is not None and (
            self._made_in is None or self._made_in() is not request
        )
        if not self._is_scoped or (self._is_for_site and is_of_another):
            if acts_for_site():
                return
            if request is None:
                clusters_within_reach()  # raises
            raise Unscoped(
                f"A query set of {self.model.__name__} that was made before the request is read "
                "within it; call all() on it first."
            )
        if self._made_in is not None and is_of_another:
            raise Unscoped(
                f"A query set of {self.model.__name__} was narrowed for another request; make it "
                "within this one."
            )

    def _scoped(self) -> Self:
        request = current_request()
        self._is_scoped, self._is_for_site = True, acts_for_site()
        self._made_in = None if request is None else weakref.ref(request)
        return self

    def _clone(self) -> Self:
        clone: Self = super()._clone()  # type: ignore[misc]
        clone._is_scoped, clone._is_for_site = self._is_scoped, self._is_for_site
        clone._made_in = self._made_in
        return clone

    # What reads or changes rows, of Django's query sets.

    def _fetch_all(self) -> None:
        if self._result_cache is None:
            self.check_scope()
        super()._fetch_all()

    def iterator(self, *args: Any, **options: Any) -> Iterator[RowT]:
        self.check_scope()
        return super().iterator(*args, **options)

    def aggregate(self, *args: Any, **named: Any) -> dict[str, Any]:
        self.check_scope()
        return super().aggregate(*args, **named)

    def count(self) -> int:
        if self._result_cache is None:
            self.check_scope()
        return super().count()

    def exists(self) -> bool:
        if self._result_cache is None:
            self.check_scope()
        return super().exists()

    def update(self, **values: Any) -> int:
        self.check_scope()
        return super().update(**values)

    def delete(self) -> tuple[int, dict[str, int]]:
        self.check_scope()
        return super().delete()

    def _raw_delete(self, using: str | None) -> Any:
        self.check_scope()
        return super()._raw_delete(using)


class ClusterManager(models.Manager[RowT]):
    """Reads rows within reach. `unscoped()` is for what no user gets to see."""

    def get_queryset(self) -> ClusterQuerySet[RowT]:
        return self._made().narrowed()

    def unscoped(self) -> ClusterQuerySet[RowT]:
        """Rows of all clusters, for any user."""
        rows = self._made()
        rows._is_scoped = True
        return rows

    def _made(self) -> ClusterQuerySet[RowT]:
        return ClusterQuerySet(self.model, using=self._db, hints=getattr(self, "_hints", {}))


class InCluster(models.Model):
    """A row that belongs to a cluster."""

    cluster_path: ClassVar[str] = "cluster"
    objects = ClusterManager()

    class Meta:
        abstract = True


def cluster_of(model: type[models.Model], **where: Any) -> int | None:
    """The cluster of the row, whoever asks; None: there is no such row, or it is of no cluster."""
    path: str = model.cluster_path  # type: ignore[attr-defined]
    rows = model._base_manager.filter(**where)
    found: int | None = rows.values_list(path, flat=True).order_by().first()
    return found
