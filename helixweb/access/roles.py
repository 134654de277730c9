"""Roles: what a user may do, on the whole site or on one cluster."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from django.db import models
from django.utils.translation import gettext_lazy


class Role(models.TextChoices):
    """Each may do what those before it may.

    A viewer looks, and asks models; an operator changes what there is and what runs; an
    administrator says who may do so.
    """

    VIEWER = "viewer", gettext_lazy("viewer")
    OPERATOR = "operator", gettext_lazy("operator")
    ADMIN = "admin", gettext_lazy("administrator")

    @property
    def rank(self) -> int:
        """Rank from 1; 0 means no role."""
        return _RANKS[self.value]


_RANKS = {"viewer": 1, "operator": 2, "admin": 3}
NO_ROLE = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """The ranks of one user: on the site, hence on every cluster, and on single clusters."""

    site: int = NO_ROLE
    clusters: Mapping[int, int] = field(default_factory=dict)

    def on(self, cluster_id: int | None) -> int:
        """The rank on a cluster; None: on what belongs to no cluster."""
        return self.site if cluster_id is None else max(self.site, self.clusters.get(cluster_id, 0))

    def where(self, role: Role) -> frozenset[int] | None:
        """The clusters where one has at least `role`; None: all that there are."""
        if self.site >= role.rank:
            return None
        return frozenset(pk for pk, rank in self.clusters.items() if rank >= role.rank)

    @property
    def highest(self) -> int:
        """Anywhere."""
        return max(self.site, *self.clusters.values(), NO_ROLE)

    def as_key(self) -> Hashable:
        """A cache key: equal rights have equal keys."""
        return self.site, tuple(sorted(self.clusters.items()))

    def within(self, cluster_id: int | None) -> "Rights":
        """Rights of a key for one cluster; None: for all."""
        if cluster_id is None:
            return self
        return Rights(clusters={cluster_id: self.on(cluster_id)})


EVERYTHING = Rights(site=Role.ADMIN.rank)
NOTHING = Rights()
