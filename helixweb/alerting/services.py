"""What people do: channels with their secrets, silences, acknowledging."""

from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from helixweb.alerting import signing
from helixweb.alerting.models import OPEN, Alert, AlertRule, Channel, Silence
from helixweb.alerting.states import State
from helixweb.common import events
from helixweb.inventory.models import Change
from helixweb.inventory.services import records
from helixweb.inventory.services.change_log import record
from planner.domain.errors import PlannerError


class AlertingError(PlannerError):
    """What was asked for cannot be; the message says why."""


def unattended() -> QuerySet[Alert]:
    """Alerts that fire, not silenced and not acknowledged."""
    return Alert.objects.filter(state=State.FIRING.value, acknowledged_at=None, silenced=False)


def create_channel(**fields: Any) -> tuple[Channel, str]:
    """The row, and the secret of its signatures, which is shown this once; empty for mails.

    Raises AlertingError, NameTaken.
    """
    row = Channel(**fields)
    _check_channel(row)
    secret = signing.new_secret() if row.way == Channel.Way.WEBHOOK else ""
    sealed = signing.seal(secret) if secret else ""
    return records.create(Channel, **fields, sealed_secret=sealed), secret


def update_channel(row: Channel, **changes: Any) -> Channel:
    """Whoever switches a channel on again has it tried anew. Raises AlertingError, NameTaken."""
    for name, value in changes.items():
        setattr(row, name, value)
    _check_channel(row)
    if changes.get("enabled"):
        changes |= {"failures": 0, "disabled_why": ""}
    return records.update(row, **changes)


def new_secret(row: Channel) -> str:
    """What was signed with the one before is not to be believed any more. Raises AlertingError."""
    if row.way != Channel.Way.WEBHOOK:
        raise AlertingError(_("Only what is posted is signed; this channel sends mails."))
    secret = signing.new_secret()
    with transaction.atomic():
        Channel.objects.filter(pk=row.pk).update(sealed_secret=signing.seal(secret))
        record(row, Change.Action.NOTED, text="made a new secret")
    return secret


def create_rule(*, channels: list[Channel] | None = None, **fields: Any) -> AlertRule:
    """Raises AlertingError, NameTaken."""
    check_rule(AlertRule(**fields), channels)
    with transaction.atomic():
        row = records.create(AlertRule, **fields)
        _set_channels(row, channels or [])
    return row


def update_rule(
    row: AlertRule, *, channels: list[Channel] | None = None, **changes: Any
) -> AlertRule:
    """`channels` None: they stay. Raises AlertingError, NameTaken."""
    for name, value in changes.items():
        setattr(row, name, value)
    check_rule(row, channels)
    with transaction.atomic():
        records.update(row, **changes)
        if channels is not None:
            _set_channels(row, channels)
    return row


def _set_channels(row: AlertRule, channels: list[Channel]) -> None:
    before = sorted(channel.name for channel in row.channels.all())
    row.channels.set(channels)
    after = sorted(channel.name for channel in channels)
    record(row, Change.Action.CHANGED, before={"channels": before}, after={"channels": after})


def create_silence(**fields: Any) -> Silence:
    """Raises AlertingError."""
    row = Silence(**fields)
    _check_silence(row)
    return records.create(Silence, **fields)


def update_silence(row: Silence, **changes: Any) -> Silence:
    """Raises AlertingError."""
    for name, value in changes.items():
        setattr(row, name, value)
    _check_silence(row)
    return records.update(row, **changes)


def delete(row: AlertRule | Channel | Silence) -> None:
    """And what hangs on it."""
    records.delete(row)  # type: ignore[arg-type]  # it removes any row and says so


def acknowledge(alert: Alert, *, by: str, comment: str, now: datetime) -> Alert:
    """Somebody looks after it. Raises AlertingError for one that is over."""
    changed = Alert.objects.filter(pk=alert.pk, state__in=OPEN).update(
        acknowledged_at=now, acknowledged_by=by[:150], comment=comment
    )
    if not changed:
        raise AlertingError(_("This alert is over; there is nothing to look after any more."))
    alert.refresh_from_db()
    record(alert, Change.Action.NOTED, text="acknowledged")
    events.emit(
        f"cluster:{alert.cluster_id}",
        "alert",
        {"alert": alert.pk, "state": "acknowledged", **alert.said},
    )
    return alert


def _check_channel(row: Channel) -> None:
    if row.way == Channel.Way.WEBHOOK and not row.url:
        raise AlertingError(_("A webhook needs the URL that is posted to."))
    if row.way == Channel.Way.EMAIL and not row.addresses:
        raise AlertingError(_("Mails need at least one address."))


def check_rule(row: AlertRule, channels: list[Channel] | None) -> None:
    """What one field alone cannot tell. Raises AlertingError."""
    if row.limits.is_bad(row.clears_at):
        raise AlertingError(
            _("It is over at %(clears_at)s, which is past its threshold of %(threshold)s.")
            % {"clears_at": f"{row.clears_at:g}", "threshold": f"{row.threshold:g}"}
        )
    for channel in channels or []:
        if channel.cluster_id != row.cluster_id:
            raise AlertingError(
                _("Channel %(channel)s is of another cluster.") % {"channel": channel}
            )


def _check_silence(row: Silence) -> None:
    if row.ends_at <= row.starts_at:
        raise AlertingError(_("A silence ends after it begins."))
    if row.rule is not None and row.rule.cluster_id != row.cluster_id:
        raise AlertingError(_("Rule %(rule)s is of another cluster.") % {"rule": row.rule})
