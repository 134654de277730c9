"""Rows of clusters that the reader may not see are not there: every query leaves them out.

A model that belongs to a cluster derives from `InCluster` and says by `cluster_path` where the
cluster is. Its manager then reads only rows of clusters within reach: those that whoever is behind
the request may see or, once the gate has found that the request changes something, those where
they may do so. Without a request (a task, a command), and in requests of processes, all are within
reach.

Querysets that are made with a class, before there is a request, are narrowed by `all()`, which
Django and DRF call on them anew for each request.
"""

from typing import Any, ClassVar, Self, TypeVar

from django.db import models

from helixweb.access.rights import rights_of_request
from helixweb.access.roles import Role
from helixweb.common.actor import current_request

RowT = TypeVar("RowT", bound=models.Model)


def clusters_within_reach() -> frozenset[int] | None:
    """None: all of them."""
    request = current_request()
    user = getattr(request, "user", None)
    if request is None or user is None or not user.is_authenticated:
        return None
    role: Role = getattr(request, "helix_role", Role.VIEWER)
    return rights_of_request(request).where(role)


class ClusterQuerySet(models.QuerySet[RowT]):
    """Narrowed once, where `all()` is called first within a request."""

    _narrowed = False

    def all(self) -> Self:
        return self.narrowed()

    def narrowed(self) -> Self:
        """The same rows, as far as they are within reach."""
        rows = super().all()
        if self._narrowed or rows.query.is_sliced:
            return rows
        clusters = clusters_within_reach()
        if clusters is not None:
            path = rows.model.cluster_path  # type: ignore[attr-defined]
            rows = rows.filter(**{f"{path}__in": clusters})
            rows._narrowed = True
        return rows

    def _clone(self) -> Self:
        clone: Self = super()._clone()  # type: ignore[misc]
        clone._narrowed = self._narrowed
        return clone


class ClusterManager(models.Manager[RowT]):
    """Reads rows within reach. `unscoped()` is for what no person reads the answer of."""

    def get_queryset(self) -> ClusterQuerySet[RowT]:
        return self.unscoped().narrowed()

    def unscoped(self) -> ClusterQuerySet[RowT]:
        """All rows, whoever asks."""
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
