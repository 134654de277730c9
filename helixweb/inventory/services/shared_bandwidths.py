"""Bandwidth that several links share: rows as the planner's values, and members that go away."""

from collections.abc import Collection, Iterator, Mapping
from typing import cast

from django.utils.translation import gettext as _

from helixweb.inventory.models import Cluster, SharedBandwidth
from planner.domain import cluster as domain
from planner.domain.cluster import COORDINATOR, SharedDirection, SharedScope
from planner.domain.errors import InvalidProblem


def domain_shared(row: SharedBandwidth) -> domain.SharedBandwidth:
    """Raises InvalidProblem naming what of the row is wrong."""
    return _with_members(row, tuple(row.members))


def shared_of(cluster: Cluster) -> Iterator[domain.SharedBandwidth]:
    """What the cluster's nodes share now: without members that are there no more.

    A region without nodes sends nothing; what has no member left limits nothing.
    """
    known = _known_members(cluster)
    for row in cluster.shared_bandwidths.order_by("pk"):
        members = tuple(name for name in row.members if name in known)
        if members:
            yield _with_members(row, members)


def check_members(row: SharedBandwidth) -> None:
    """Raises InvalidProblem for a member that the cluster does not have."""
    domain_shared(row)
    known = _known_members(row.cluster)
    for name in row.members:
        if name not in known:
            raise InvalidProblem(
                _(
                    "shared bandwidth %(name)s: member %(member)s is neither a node nor a "
                    "region of cluster %(cluster)s; name one of these or %(coordinator)s"
                )
                % {
                    "name": repr(row.name),
                    "member": repr(name),
                    "cluster": repr(row.cluster.name),
                    "coordinator": repr(COORDINATOR),
                }
            )


def rename_member(cluster: Cluster, *, old: str, new: str) -> None:
    """A node is called otherwise from now on."""
    _replace_members(cluster.pk, {old: new})


def forget_members(cluster_id: int, names: Collection[str]) -> None:
    """These nodes are gone; what they alone shared goes with them."""
    _replace_members(cluster_id, dict.fromkeys(names))


def _with_members(row: SharedBandwidth, members: tuple[str, ...]) -> domain.SharedBandwidth:
    return domain.SharedBandwidth(
        name=row.name,
        members=members,
        direction=cast(SharedDirection, row.direction),  # the domain type checks them
        bandwidth_bytes_per_s=row.bandwidth_bytes_per_s,
        scope=cast(SharedScope, row.scope),
    )


def _known_members(cluster: Cluster) -> frozenset[str]:
    ends = cluster.nodes.values_list("name", "region")
    return frozenset(
        {COORDINATOR, cluster.coordinator_region} | {name for end in ends for name in end}
    )


def _replace_members(cluster_id: int, new_names: Mapping[str, str | None]) -> None:
    """Call it in a transaction. None: the member is left out."""
    for row in SharedBandwidth.objects.select_for_update().filter(cluster=cluster_id):
        members = [name for old in row.members if (name := new_names.get(old, old)) is not None]
        if not members:
            row.delete()
        elif members != row.members:
            row.members = members
            row.save(update_fields=["members"])
