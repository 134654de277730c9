"""Let new requests of a deployment wait, and let them in again; its layers stay where they are."""

from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from helixweb.common.refusals import Conflict
from helixweb.deployment.announcing import announce, logged_values, record
from helixweb.deployment.models import SERVING, Deployment
from helixweb.deployment.pushing import wake_coordinators


def pause(deployment: Deployment, *, user: Any, now: datetime) -> Deployment:
    """What runs ends, new requests wait. Raises Conflict unless it serves and is not paused."""
    said = gettext_noop("%(user)s pauses %(model)s: new requests wait.")
    return _switch(deployment, now, said=said, user=user)


def resume(deployment: Deployment, *, user: Any) -> Deployment:
    """Let in what waits. Raises Conflict unless it serves and is paused."""
    return _switch(deployment, None, said=gettext_noop("%(user)s resumes %(model)s."), user=user)


def _switch(
    deployment: Deployment, paused_at: datetime | None, *, said: str, user: Any
) -> Deployment:
    """Pages, the coordinator and the change log hear of it."""
    with transaction.atomic():
        row = Deployment.objects.select_for_update(no_key=True).get(pk=deployment.pk)
        before = logged_values(row)
        if row.status not in SERVING or before["paused"] == (paused_at is not None):
            text = (
                _("Deployment %(id)s is not paused, or does not run any more.")
                if paused_at is None
                else _("Deployment %(id)s is paused already, or does not run any more.")
            )
            raise Conflict(text % {"id": row.pk})
        row.paused_at = paused_at
        row.save(update_fields=["paused_at"])
        record(row, before=before)
        announce(row, said, user=str(user), model=row.model_name)
        wake_coordinators(row.cluster_id)
        return row
