"""Back to what the cluster ran before, by one button."""

from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from helixweb.deployment.models import SERVING, Deployment
from helixweb.deployment.services.deploying import DeployRefused, deploy


def deployment_before(deployment: Deployment) -> Deployment | None:
    """The last one in its cluster before it that came to serve."""
    return (
        Deployment.objects.filter(
            cluster=deployment.cluster_id, pk__lt=deployment.pk, ready_at__isnull=False
        )
        .defer("serving_plan")
        .order_by("-pk")
        .first()
    )


def roll_back(deployment: Deployment, *, user: Any, now: datetime) -> Deployment:
    """Deploy what served before again, with its options and the same version of the model.

    Raises DeployRefused as `deploy`; also when this one does not run any more, or was the first.
    """
    before = deployment_before(deployment)
    if deployment.status not in SERVING:
        raise DeployRefused(
            _("Deployment %(id)s is %(status)s; only what runs can be rolled back.")
            % {"id": deployment.pk, "status": _(deployment.status)}
        )
    if before is None:
        raise DeployRefused(
            _("No deployment served on this cluster before deployment %(id)s; deploy another plan.")
            % {"id": deployment.pk}
        )
    is_same_model = before.plan.model.checkpoint == before.checkpoint
    return deploy(
        before.plan,
        user=user,
        options=before.options,
        now=now,
        seen_generation=deployment.generation,
        pinned_checkpoint=before.pinned_checkpoint if is_same_model else "",
    )
