"""Let new requests of a deployment wait, and let them in again; its layers stay where they are."""

from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from helixweb.common.refusals import Conflict
from helixweb.common.sentences import sentence
from helixweb.deployment.announcing import announce
from helixweb.deployment.models import SERVING, Deployment
from helixweb.deployment.pushing import wake_coordinator
from helixweb.deployment.services.change_lines import record_change, values_told


def pause(deployment: Deployment, *, user: Any, now: datetime) -> Deployment:
    """What runs ends, new requests wait. Raises Conflict unless it serves and is not paused."""
    with transaction.atomic():
        rows = Deployment.objects.filter(
            pk=deployment.pk, status__in=SERVING, paused_at__isnull=True
        )
        if not rows.update(paused_at=now):
            raise Conflict(
                _("Deployment %(id)s is paused already, or does not run any more.")
                % {"id": deployment.pk}
            )
        said = gettext_noop("%(user)s pauses %(model)s: new requests wait.")
        return _told(deployment, said=said, user=user, was_paused=False)


def resume(deployment: Deployment, *, user: Any) -> Deployment:
    """Let in what waits. Raises Conflict unless it serves and is paused."""
    with transaction.atomic():
        rows = Deployment.objects.filter(
            pk=deployment.pk, status__in=SERVING, paused_at__isnull=False
        )
        if not rows.update(paused_at=None):
            raise Conflict(
                _("Deployment %(id)s is not paused, or does not run any more.")
                % {"id": deployment.pk}
            )
        said = gettext_noop("%(user)s resumes %(model)s.")
        return _told(deployment, said=said, user=user, was_paused=True)


def _told(deployment: Deployment, *, said: str, user: Any, was_paused: bool) -> Deployment:
    """Pages, the coordinator and the change log hear of it."""
    row = Deployment.objects.get(pk=deployment.pk)
    record_change(row, before={**values_told(row), "paused": was_paused})
    announce(row, said=sentence(said, user=str(user), model=row.model_name))
    wake_coordinator(row.cluster_id)
    return row
