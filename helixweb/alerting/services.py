"""What people do: channels with their secrets, silences, acknowledging."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypeVar

from django.db import models, transaction
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

Row = TypeVar("Row", bound=models.Model)


class AlertingError(PlannerError):
    """What was asked for cannot be; the message says why."""


def unattended(rows: QuerySet[Alert]) -> QuerySet[Alert]:
    """Those that fire, not silenced and not acknowledged."""
    return rows.filter(state=State.FIRING.value, acknowledged_at=None, silenced=False)


def create(model: type[Row], *, channels: Iterable[Channel] | None = None, **fields: Any) -> Row:
    """A rule, which may name `channels`, a channel or a silence. The secret of a webhook's
    signatures is its `shown_secret`, this once. Raises AlertingError, NameTaken."""
    row: Any = model(**fields)
    check(row, channels)
    secret = signing.new_secret() if getattr(row, "way", "") == Channel.Way.WEBHOOK else ""
    if secret:
        fields["sealed_secret"] = signing.seal(secret)
    with transaction.atomic():
        row = records.create(model, **fields)
        if channels is not None:
            _set_channels(row, channels)
    row.shown_secret = secret
    made: Row = row
    return made


def update(row: Row, *, channels: Iterable[Channel] | None = None, **changes: Any) -> Row:
    """A channel that is enabled again has no failures yet; `channels` of a rule stay if they are
    None. Raises AlertingError, NameTaken."""
    for name, value in changes.items():
        setattr(row, name, value)
    check(row, channels)
    if isinstance(row, Channel) and changes.get("enabled"):
        changes |= {"failures": 0, "disabled_why": ""}
    with transaction.atomic():
        records.update(row, **changes)
        if channels is not None:
            _set_channels(row, channels)
    return row


def _set_channels(row: Any, channels: Iterable[Channel]) -> None:
    before = sorted(channel.name for channel in row.channels.all())
    row.channels.set(channels)
    after = sorted(channel.name for channel in channels)
    record(row, Change.Action.CHANGED, before={"channels": before}, after={"channels": after})


def new_secret(row: Channel) -> str:
    """What was signed with the one before is not to be believed any more. Raises AlertingError."""
    if row.way != Channel.Way.WEBHOOK:
        raise AlertingError(_("Only what is posted is signed; this channel sends mails."))
    secret = signing.new_secret()
    with transaction.atomic():
        Channel.unscoped.filter(pk=row.pk).update(sealed_secret=signing.seal(secret))
        record(row, Change.Action.NOTED, text="made a new secret")
    return secret


def acknowledge(alert: Alert, *, by: str, comment: str, now: datetime) -> Alert:
    """Somebody looks after it. Raises AlertingError for one that is over."""
    changed = Alert.unscoped.filter(pk=alert.pk, state__in=OPEN).update(
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


def check(row: models.Model, channels: Iterable[Channel] | None = None) -> None:
    """What one field alone cannot tell. Raises AlertingError."""
    if isinstance(row, Channel):
        if row.way == Channel.Way.WEBHOOK and not row.url:
            raise AlertingError(_("A webhook needs the URL that is posted to."))
        if row.way == Channel.Way.EMAIL and not row.addresses:
            raise AlertingError(_("Mails need at least one address."))
    elif isinstance(row, AlertRule):
        _check_rule(row, channels or ())
    elif isinstance(row, Silence):
        if row.ends_at <= row.starts_at:
            raise AlertingError(_("A silence ends after it begins."))
        if row.rule is not None and row.rule.cluster_id != row.cluster_id:
            raise AlertingError(_("Rule %(rule)s is of another cluster.") % {"rule": row.rule})


def _check_rule(row: AlertRule, channels: Iterable[Channel]) -> None:
    if row.limits.is_bad(row.clears_at):
        raise AlertingError(
            _("It is over at %(clears_at)s, which is past its threshold of %(threshold)s.")
            % {"clears_at": f"{row.clears_at:g}", "threshold": f"{row.threshold:g}"}
        )
    for channel in channels:
        if channel.cluster_id != row.cluster_id:
            raise AlertingError(
                _("Channel %(channel)s is of another cluster.") % {"channel": channel}
            )
