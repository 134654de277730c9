"""Deliveries to channels: stored with the alerts, claimed by lease, retried until they succeed."""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.translation import gettext_noop

from helixweb.alerting.kinds import Severity
from helixweb.alerting.models import Alert, Channel, Delivery, DeliveryAttempt
from helixweb.alerting.states import State
from helixweb.common import events
from helixweb.common.jobs import Lease
from helixweb.common.sentences import sentence
from helixweb.inventory.models import Change, Cluster
from helixweb.inventory.services import change_log

Status = Delivery.Status
# Changes of alerts within this time are sent in one delivery.
GROUPED = timedelta(seconds=5)
# Longer than an attempt may take.
LEASE = timedelta(seconds=40)
MOST_ATTEMPTS = 8
FIRST_WAIT_S, LONGEST_WAIT_S = 10.0, 3600.0
# A channel that failed so often in a row, for good, is switched off.
MOST_FAILURES = 5
_RANKS = {Severity.WARNING.value: 0, Severity.CRITICAL.value: 1}
GONE = 410
# Error of an attempt whose worker was lost. The next attempt has the same delivery number, by which
# the receiver recognises a duplicate.
LOST = "the worker that tried was lost; whether it arrived is not known"


def tell(cluster: Cluster, alerts: Sequence[Alert], *, now: datetime) -> None:
    """Store deliveries of alerts that changed state; call it in the transaction of the change."""
    if not alerts:
        return
    channels = list(Channel.unscoped.filter(cluster=cluster, enabled=True).order_by("pk"))
    chosen = {
        alert.rule_id: set(alert.rule.channels.values_list("pk", flat=True)) for alert in alerts
    }
    for channel in channels:
        documents = [
            _document(alert) for alert in alerts if _is_for(channel, alert, chosen[alert.rule_id])
        ]
        if documents:
            _add(channel, documents, now)


def tell_of_life(cluster: Cluster, *, now: datetime) -> None:
    """Store the deliveries that channels with `alive_every_s` get even if nothing fires."""
    wanted = Channel.unscoped.filter(cluster=cluster, enabled=True, alive_every_s__gt=0)
    for channel in wanted:
        last = channel.deliveries.filter(occasion=Delivery.Occasion.ALIVE).first()
        every = timedelta(seconds=channel.alive_every_s or 0)
        if last is None or now - last.created_at >= every:
            _make(channel, Delivery.Occasion.ALIVE, now=now)


def test_channel(channel: Channel, *, now: datetime) -> Delivery:
    """Store a test delivery, also for a channel that is switched off."""
    return _make(channel, Delivery.Occasion.TEST, now=now)


def again(delivery: Delivery, *, now: datetime) -> bool:
    """Retry a failed delivery under its old number; False if it did not fail."""
    changed = Delivery.unscoped.filter(pk=delivery.pk, status=Status.FAILED).update(
        status=Status.QUEUED, next_try_at=now, finished_at=None, error=""
    )
    return bool(changed)


def due_ids(now: datetime) -> list[int]:
    """Ids of deliveries that are due, and of those whose worker died."""
    return list(_due(now).order_by("pk").values_list("pk", flat=True))


def _due(now: datetime) -> QuerySet[Delivery]:
    queued = Q(status=Status.QUEUED, next_try_at__lte=now)
    return Delivery.unscoped.filter(queued | Q(status=Status.RUNNING, lease_expires_at__lt=now))


def claim(delivery_id: int, *, now: datetime) -> int | None:
    """The number of the attempt; None: it is not due, or another worker has it."""
    with transaction.atomic():
        row = _due(now).filter(pk=delivery_id).first()
        if row is None or not _due(now).filter(pk=delivery_id, attempt=row.attempt).update(
            status=Status.RUNNING,
            attempt=row.attempt + 1,
            lease_expires_at=now + LEASE,
            started_at=row.started_at or now,
        ):
            return None
        if row.status == Status.RUNNING and row.lease_expires_at is not None:
            DeliveryAttempt.objects.create(
                delivery=row,
                attempt=row.attempt,
                at=row.lease_expires_at - LEASE,
                took_s=LEASE.total_seconds(),
                error=LOST,
            )
    return row.attempt + 1


def record(
    delivery: Delivery,
    *,
    attempt: int,
    at: datetime,
    now: datetime,
    code: int | None,
    error: str,
    final: bool = False,
) -> None:
    """Store the result of one attempt. `final`: do not retry. Raises LostLease."""
    worked = code is not None and 200 <= code < 300
    error = "" if worked else error or f"the receiver answered {code}"
    is_over = worked or final or code == GONE or attempt >= MOST_ATTEMPTS
    with transaction.atomic():
        fields: dict[str, Any] = {"lease_expires_at": None, "error": error}
        if is_over:
            fields |= {"status": Status.SUCCEEDED if worked else Status.FAILED, "finished_at": now}
        else:
            wait = timedelta(seconds=wait_s(attempt))
            fields |= {"status": Status.QUEUED, "next_try_at": now + wait}
        Lease(delivery, attempt).update(**fields)
        DeliveryAttempt.objects.create(
            delivery=delivery,
            attempt=attempt,
            at=at,
            took_s=max(0.0, (now - at).total_seconds()),
            code=code,
            error=error[:500],
        )
        if is_over:
            _judge(delivery.channel_id, worked=worked, gone=code == GONE, error=error)


def wait_s(attempt: int) -> float:
    """Backoff in seconds after that many attempts."""
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** (attempt - 1))


def prune(before: datetime) -> None:
    """Delete deliveries that ended before this time."""
    Delivery.unscoped.filter(finished_at__lt=before).delete()


def _is_for(channel: Channel, alert: Alert, chosen: set[int]) -> bool:
    if chosen and channel.pk not in chosen:
        return False
    if alert.state == State.RESOLVED and not channel.send_resolved:
        return False
    return _RANKS[alert.severity] >= _RANKS[channel.least_severity]


def _add(channel: Channel, documents: list[dict[str, Any]], now: datetime) -> None:
    """Add them to the channel's delivery that was not tried yet, or to a new one."""
    waiting = (
        Delivery.unscoped.select_for_update()
        .filter(
            channel=channel,
            occasion=Delivery.Occasion.ALERTS,
            status=Status.QUEUED,
            attempt=0,
            next_try_at__gt=now,
        )
        .first()
    )
    if waiting is None:
        _make(channel, Delivery.Occasion.ALERTS, now=now, told=documents, next_try_at=now + GROUPED)
        return
    waiting.told = [*waiting.told, *documents]
    waiting.save(update_fields=["told"])


def _make(
    channel: Channel, occasion: Delivery.Occasion, *, now: datetime, **fields: Any
) -> Delivery:
    return Delivery.objects.create(
        channel=channel,
        occasion=occasion,
        number=uuid.uuid4(),
        **{"next_try_at": now, **fields},
    )


def _document(alert: Alert) -> dict[str, Any]:
    """An alert as receivers get it; `id` and `turn` together identify this change of its state."""
    return {
        "id": alert.pk,
        "turn": alert.turn,
        "state": alert.state,
        "severity": alert.severity,
        "cluster": alert.cluster.name,
        "rule": alert.rule.name,
        "kind": alert.rule.kind,
        "subject": alert.subject,
        "value": alert.value,
        "threshold": alert.rule.threshold,
        "unit": alert.rule.unit,
        "text": alert.said.get("text", ""),
        "fired_at": None if alert.fired_at is None else alert.fired_at.isoformat(),
        "resolved_at": None if alert.resolved_at is None else alert.resolved_at.isoformat(),
        "flaps": alert.flaps,
    }


def _judge(channel_id: int, *, worked: bool, gone: bool, error: str) -> None:
    """Count failures of a channel; switch it off after too many, or if its receiver is gone."""
    channel = Channel.unscoped.select_for_update().get(pk=channel_id)
    channel.failures = 0 if worked else channel.failures + 1
    if not worked and channel.enabled and (gone or channel.failures >= MOST_FAILURES):
        channel.enabled = False
        channel.disabled_why = (
            "the receiver says that it is gone (410)"
            if gone
            else f"{channel.failures} deliveries in a row failed; the last: {error}"
        )
        before, after = {"enabled": True}, {"enabled": False}
        change_log.record(channel, Change.Action.CHANGED, before=before, after=after)
        said = sentence(gettext_noop("Channel %(name)s is switched off."), name=channel.name)
        events.emit(f"cluster:{channel.cluster_id}", "alert", said)
    channel.save(update_fields=["failures", "enabled", "disabled_why"])
