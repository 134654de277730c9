"""Tells open pages what became of a deployment."""

from helixweb.common import events
from helixweb.deployment.models import Deployment


def announce(deployment: Deployment, *, text: str) -> None:
    """For the deployment's page and, as a sentence, for the cluster's."""
    content = {
        "deployment": deployment.pk,
        "status": deployment.status,
        "generation": deployment.generation,
        "text": text,
    }
    events.emit(deployment.topic, "deployment", content)
    events.emit(f"cluster:{deployment.cluster_id}", "event", content)
