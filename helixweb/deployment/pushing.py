"""Wakes the processes of a cluster: each then reads its desired state again.

A push carries nothing, so it may be repeated or late. It commits with what it is about.
"""

from typing import Any

from helixweb.common import events
from helixweb.inventory.models import Coordinator, Node


def wake_cluster(cluster_id: int) -> None:
    """Every process that has joined."""
    wake(*Node.unscoped.filter(cluster=cluster_id, joined_at__isnull=False))
    wake_coordinators(cluster_id)


def announce_keys(**signal: Any) -> None:
    """An API key was made, revoked or deleted: every coordinator reads its list again."""
    wake(*Coordinator.unscoped.all())


def wake_coordinators(cluster_id: int) -> None:
    """What they must serve has changed, though not what nodes must run."""
    wake(*Coordinator.unscoped.filter(cluster=cluster_id))


def wake(*processes: Node | Coordinator) -> None:
    """These alone."""
    events.emit_to([process.topic for process in processes], "desired", {})
