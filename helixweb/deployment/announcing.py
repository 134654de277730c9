"""Tells open pages what became of a deployment."""

from collections.abc import Mapping
from typing import Any

from helixweb.common import events
from helixweb.deployment.models import Deployment


def announce(deployment: Deployment, *, said: Mapping[str, Any]) -> None:
    """For the deployment's page and, as a `sentence`, for the cluster's."""
    content = {
        "deployment": deployment.pk,
        "status": deployment.status,
        "generation": deployment.generation,
        **said,
    }
    events.emit(deployment.topic, "deployment", content)
    events.emit(f"cluster:{deployment.cluster_id}", "event", content)
