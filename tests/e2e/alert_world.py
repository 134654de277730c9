"""Alerts of the tests' world: one that fires, a channel that failed, a silence."""

import uuid
from datetime import datetime, timedelta
from typing import Any

from helixweb.alerting.models import (
    Alert,
    AlertRule,
    Channel,
    Delivery,
    DeliveryAttempt,
    Silence,
)
from helixweb.common.sentences import sentence
from helixweb.inventory.services import records


def some_alerts(cluster: Any, *, user: Any, now: datetime) -> dict[str, Any]:
    """Ids by what they are of."""
    rule = records.create(
        AlertRule,
        cluster=cluster,
        name="slow-answers",
        kind="ttft_p95",
        threshold=5.0,
        clears_at=4.0,
        for_s=120.0,
        resolve_s=86_400.0,  # no worker ends what it finds here
        severity="critical",
    )
    alert = Alert.objects.create(
        cluster=cluster,
        rule=rule,
        subject="TTFT",
        severity="critical",
        state="firing",
        value=9.0,
        said=sentence("95 of 100 first tokens come within %(value)s s.", value="9"),
        since=now - timedelta(minutes=7),
        fired_at=now - timedelta(minutes=5),
        flaps=2,
        turn=1,
    )
    channel = records.create(
        Channel, cluster=cluster, name="ops", way="webhook", url="http://127.0.0.1:9/hook"
    )
    delivery = Delivery.objects.create(
        channel=channel,
        occasion="alerts",
        number=uuid.uuid4(),
        told=[{"rule": rule.name, "subject": "TTFT", "state": "firing"}],
        status="failed",
        attempt=2,
        error="the receiver answered 500",
        next_try_at=now,
        finished_at=now,
    )
    for attempt in (1, 2):
        DeliveryAttempt.objects.create(
            delivery=delivery, attempt=attempt, at=now, took_s=0.2, code=500, error=delivery.error
        )
    silence = Silence.objects.create(
        cluster=cluster,
        subject="mini",
        starts_at=now,
        ends_at=now + timedelta(hours=8),
        comment="uplink",
        created_by=user,
    )
    return {
        "alert": alert.pk,
        "alert_rule": rule.pk,
        "alert_channel": channel.pk,
        "alert_delivery": delivery.pk,
        "alert_silence": silence.pk,
    }
