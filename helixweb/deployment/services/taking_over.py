"""One deployment follows another while both run: how far that is, and when it is over."""

from datetime import datetime

from django.utils.translation import gettext_noop

from helixweb.common import events
from helixweb.common.sentences import sentence
from helixweb.deployment.announcing import announce
from helixweb.deployment.models import SERVING, Deployment
from helixweb.deployment.pushing import wake_unplaced
from runtime.protocol.control import CoordinatorReport


def follow_change(cluster_id: int, report: CoordinatorReport, *, now: datetime) -> None:
    """Take from the coordinators' joint report whether the generation before has gone; for a moment
    it may serve on, so whoever looks at the deployment's page is told of every step."""
    deployment = (
        Deployment.objects.filter(
            cluster=cluster_id,
            generation=report.generation,
            status__in=SERVING,
            follows_generation__isnull=False,
            took_over_at__isnull=True,
        )
        .defer("serving_plan")
        .first()
    )
    if deployment is None:
        return
    if not has_taken_over(report):
        events.emit(deployment.topic, "deployment", {"deployment": deployment.pk})
        return
    still = Deployment.objects.filter(
        pk=deployment.pk, generation=deployment.generation, took_over_at__isnull=True
    )
    if still.update(took_over_at=now):
        wake_unplaced(deployment)
        announce(
            deployment,
            said=sentence(
                gettext_noop("%(name)s has taken over: nothing is left of what ran before."),
                name=deployment.model_name,
            ),
        )


def has_taken_over(report: CoordinatorReport) -> bool:
    """Whether its generation serves, and no stage speaks of the one before."""
    if report.refused_generation == report.generation:
        return False
    return report.serving and report.coming_generation is None and report.leaving_generation is None
