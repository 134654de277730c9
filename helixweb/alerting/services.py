"""Evaluates the rules of a cluster, and acts for users: acknowledges alerts, replaces secrets."""

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from cryptography.x509 import InvalidVersion
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils.translation import gettext as _

from helixweb.alerting import deliveries, signing
from helixweb.alerting.kinds import DEFAULTS, Kind
from helixweb.alerting.models import OPEN, Alert, AlertRule, Channel, Evaluation, Silence
from helixweb.alerting.readings import Reading, read, with_readings
from helixweb.alerting.states import State, begin, follow
from helixweb.common import events
from helixweb.common.refusals import Conflict
from helixweb.inventory.models import Change, Cluster
from helixweb.inventory.services.change_log import record
from helixweb.monitoring.moment import Moment
from planner import InvalidProblem

logger = logging.getLogger(__name__)
KEPT = timedelta(days=30)


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


def evaluate(cluster: Cluster, *, now: datetime) -> int:
    """Evaluate all rules of the cluster; returns how many alerts changed state.

    Readings are read before the lock is taken, so that it does not delay other writers. This runs
    every few seconds for many clusters, so only what a rule needs is read.
    """
    _begin_with_defaults(cluster, now)
    moment = Moment(cluster, now)
    rules = AlertRule.unscoped.filter(cluster=cluster).order_by("pk")
    read_of = [(rule, _read(rule, moment)) for rule in rules]
    with transaction.atomic():
        row = Evaluation.unscoped.select_for_update().get(cluster=cluster)
        if row.at > now:
            return 0  # another worker has evaluated since
        Evaluation.unscoped.filter(pk=row.pk).update(at=now)
        open_of = _open_alerts(cluster)
        turned = [
            alert
            for rule, readings in read_of
            if readings is not None
            for alert in _evaluate_rule(rule, readings, open_of.get(rule.pk, {}), now)
        ]
        if turned:
            _tell(cluster, turned, now)
        deliveries.tell_of_life(cluster, now=now)
    return len(turned)


def ids_to_look_at(now: datetime) -> list[int]:
    """Clusters where an alert may begin or end, or a sign of life may be due; and those that were
    never looked at, which have no rules yet."""
    own = Q(cluster=OuterRef("pk"))
    found = Cluster.unscoped.filter(
        Q(pk__in=with_readings(now).values("pk"))
        | Exists(Alert.unscoped.filter(own, state__in=OPEN))
        | Exists(Channel.unscoped.filter(own, enabled=True, alive_every_s__gt=0))
        | ~Exists(Evaluation.unscoped.filter(own))
    )
    return list(found.order_by("pk").values_list("pk", flat=True))


def prune(now: datetime) -> None:
    """Delete alerts and deliveries that ended over a month ago."""
    Alert.unscoped.filter(state=State.RESOLVED, resolved_at__lt=now - KEPT).delete()
    deliveries.prune(now - KEPT)


def _begin_with_defaults(cluster: Cluster, now: datetime) -> None:
    """Create the default rules, at the first evaluation only: deleted rules stay deleted."""
    if Evaluation.unscoped.filter(cluster=cluster).exists():
        return
    with transaction.atomic():
        _, is_new = Evaluation.unscoped.get_or_create(cluster=cluster, defaults={"at": now})
        if not is_new:
            return
        AlertRule.objects.bulk_create(
            AlertRule(
                cluster=cluster,
                name=str(kind.value).replace("_", " "),
                kind=kind,
                **usual.columns,
            )
            for kind, usual in DEFAULTS.items()
        )


def _read(rule: AlertRule, moment: Moment) -> dict[str, Reading] | None:
    """Readings by subject: empty for a disabled rule; None: unreadable now, no alert changes."""
    if not rule.enabled:
        return {}
    try:
        return read(Kind(rule.kind), moment)
    except (OSError, ValueError, InvalidVersion) as error:  # the certificate's file
        logger.warning("rule %s of %s cannot be read: %s", rule, moment.cluster, error)
        return None


def _open_alerts(cluster: Cluster) -> dict[int, dict[str, Alert]]:
    """Open alerts by rule id and subject."""
    found: dict[int, dict[str, Alert]] = {}
    for alert in Alert.unscoped.filter(cluster=cluster, state__in=OPEN):
        found.setdefault(alert.rule_id, {})[alert.subject] = alert
    return found


def _tell(cluster: Cluster, turned: Iterable[Alert], now: datetime) -> None:
    """Notify open pages of all changed alerts, and channels of those that are not silenced."""
    silences = list(Silence.unscoped.filter(cluster=cluster, starts_at__lte=now, ends_at__gt=now))
    audible = [alert for alert in turned if not _is_silenced(alert, silences)]
    for alert in turned:
        _announce(alert)
    deliveries.tell(cluster, audible, now=now)


def _evaluate_rule(
    rule: AlertRule,
    readings: Mapping[str, Reading],
    open_alerts: Mapping[str, Alert],
    now: datetime,
) -> Iterable[Alert]:
    """The alerts that changed state. `open_alerts` are the rule's, by subject."""
    for subject, alert in open_alerts.items():
        if _follow(alert, rule, readings.get(subject), now):
            yield alert
    for subject, reading in readings.items():
        if subject not in open_alerts and rule.is_bad(reading.value):
            alert_or_none = _begin(rule, reading, now)
            if alert_or_none is not None and alert_or_none.state == State.FIRING:
                yield alert_or_none


def _begin(rule: AlertRule, reading: Reading, now: datetime) -> Alert | None:
    last = (
        Alert.unscoped.filter(rule=rule, subject=reading.subject, state=State.RESOLVED)
        .order_by("-pk")
        .first()
    )
    alert = Alert(
        cluster_id=rule.cluster_id, rule=rule, subject=reading.subject, severity=rule.severity
    )
    if not begin(alert, reading.value, before=last, now=now):
        return None
    _write(alert, "", reading)
    return alert


def _follow(alert: Alert, rule: AlertRule, reading: Reading | None, now: datetime) -> bool:
    """Update an open alert from its reading; returns whether its state changed."""
    value = None if reading is None else reading.value
    before, alert.rule = alert.state, rule
    if not follow(alert, value, now=now):
        alert.delete()
        return False
    if value is not None and rule.is_good(value):
        reading = None  # the alert keeps its last bad reading
    _write(alert, before, reading)
    return alert.state != before


def _write(alert: Alert, before: str, reading: Reading | None) -> None:
    if reading is not None:
        alert.value, alert.said = reading.value, dict(reading.said)
    if alert.state != before and alert.state != State.PENDING:
        alert.turn = 1 if alert.state == State.FIRING else 2
    alert.save()


def _is_silenced(alert: Alert, silences: Iterable[Silence]) -> bool:
    """True if no channel gets a message; nor does one about the end of a silenced alert."""
    if alert.state == State.RESOLVED:
        return alert.silenced
    is_silenced = any(
        silence.rule_id in (None, alert.rule_id) and silence.subject in ("", alert.subject)
        for silence in silences
    )
    if is_silenced:
        Alert.unscoped.filter(pk=alert.pk).update(silenced=True)
        alert.silenced = True
    return is_silenced


def _announce(alert: Alert) -> None:
    said: dict[str, Any] = {
        "alert": alert.pk,
        "state": alert.state,
        "severity": alert.severity,
        "rule": alert.rule.name,
        "subject": alert.subject,
        **alert.said,
    }
    events.emit(f"cluster:{alert.cluster_id}", "alert", said)
