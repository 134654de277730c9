"""Notifies of what became of a deployment: open pages by events, the change log of what users and
policies decide (not how far it is), and processes, each of which reads its desired state again.

What wakes a process carries nothing, so it may be repeated or late; it commits with its cause.
"""

from typing import Any

from helixweb.common import events
from helixweb.common.sentences import sentence
from helixweb.deployment.models import Deployment
from helixweb.deployment.options import OPTION_NAMES
from helixweb.inventory.models import Change, Coordinator, Node
from helixweb.inventory.services.change_log import Values, change_of

_LOGGED = ("plan_id", "model_name", "generation", *OPTION_NAMES)


def announce(deployment: Deployment, message: str, **values: str | int | float) -> None:
    """Emit an event for the deployment's page and, as a `sentence`, for the cluster's."""
    content = {
        "deployment": deployment.pk,
        "status": deployment.status,
        "generation": deployment.generation,
        **sentence(message, **values),
    }
    events.emit(deployment.topic, "deployment", content)
    events.emit(f"cluster:{deployment.cluster_id}", "event", content)


def nudge_page(deployment: Deployment) -> None:
    """Have open pages of the deployment read it again."""
    events.emit(deployment.topic, "deployment", {"deployment": deployment.pk})


def logged_values(row: Deployment) -> Values:
    """Columns of a deployment for the change log, without those of its plan."""
    values = {name: getattr(row, name) for name in _LOGGED}
    return {**values, "status": str(row.status), "paused": row.paused_at is not None}


def record(row: Deployment, *, before: Values | None, after: Values | None = None) -> None:
    """Log what differs, in the transaction of the change; `before` is None for a new row."""
    action = Change.Action.ADDED if before is None else Change.Action.CHANGED
    line = change_of(row, action, before=before, after=after or logged_values(row))
    if line is not None:
        line.name = row.model_name  # the log shows its number beside this name
        line.save()


def wake_cluster(cluster_id: int) -> None:
    """Wake every process of the cluster that has joined."""
    wake(*Node.unscoped.filter(cluster=cluster_id, joined_at__isnull=False))
    wake_coordinators(cluster_id)


def announce_keys(**signal: Any) -> None:
    """An API key was made, revoked or deleted: every coordinator reads its list again."""
    wake(*Coordinator.unscoped.all())


def wake_coordinators(cluster_id: int) -> None:
    """Notify coordinators of a new desired state; that of nodes is unchanged."""
    wake(*Coordinator.unscoped.filter(cluster=cluster_id))


def wake(*processes: Node | Coordinator) -> None:
    """These alone."""
    events.emit_to([process.topic for process in processes], "desired", {})
