"""Actions of users on alerts and channels: acknowledge, replace a secret."""

from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from helixweb.alerting import signing
from helixweb.alerting.models import OPEN, Alert, Channel
from helixweb.alerting.states import State
from helixweb.common import events
from helixweb.common.refusals import Conflict
from helixweb.inventory.models import Change
from helixweb.inventory.services.change_log import record
from planner import InvalidProblem


def unattended(rows: QuerySet[Alert]) -> QuerySet[Alert]:
    """Alerts that fire and are neither silenced nor acknowledged."""
    return rows.filter(state=State.FIRING.value, acknowledged_at=None, silenced=False)


def replace_secret(row: Channel) -> str:
    """Make a new signing secret; the previous one becomes invalid. Raises InvalidProblem."""
    if row.way != Channel.Way.WEBHOOK:
        raise InvalidProblem(_("Only what is posted is signed; this channel sends mails."))
    secret = signing.new_secret()
    with transaction.atomic():
        Channel.unscoped.filter(pk=row.pk).update(sealed_secret=signing.seal(secret))
        record(row, Change.Action.NOTED, text="made a new secret")
    return secret


def acknowledge(alert: Alert, *, by: str, comment: str, now: datetime) -> Alert:
    """Mark an alert as acknowledged by a user. Raises Conflict for one that is over."""
    changed = Alert.unscoped.filter(pk=alert.pk, state__in=OPEN).update(
        acknowledged_at=now, acknowledged_by=by[:150], comment=comment
    )
    if not changed:
        raise Conflict(_("This alert is over; there is nothing to look after any more."))
    alert.refresh_from_db()
    record(alert, Change.Action.NOTED, text="acknowledged")
    events.emit(
        f"cluster:{alert.cluster_id}",
        "alert",
        {"alert": alert.pk, "state": "acknowledged", **alert.said},
    )
    return alert
