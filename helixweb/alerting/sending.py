"""One attempt of one delivery: a signed POST, or a mail."""

import json
import logging
import smtplib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage
from django.urls import reverse
from django.utils import timezone

from helixweb.alerting import deliveries, signing
from helixweb.alerting.models import Channel, Delivery
from helixweb.alerting.outbound import NotDelivered, TargetRefused, post
from helixweb.common.jobs import LostLease

logger = logging.getLogger(__name__)

MOST_LINES = 50


def send(delivery_id: int) -> None:
    """Try the delivery once if it is due and no other worker has it."""
    began_at = timezone.now()
    attempt = deliveries.claim(delivery_id, now=began_at)
    if attempt is None:
        return
    delivery = Delivery.unscoped.select_related("channel__cluster").get(pk=delivery_id)
    code, error, final = None, "", False
    try:
        code = _try(delivery, attempt, began_at)
    except (TargetRefused, signing.SecretUnreadable) as refusal:
        error, final = str(refusal), True
    except (NotDelivered, smtplib.SMTPException, OSError) as failure:
        error = str(failure) or type(failure).__name__
    if error:
        logger.warning("delivery %s to %s: %s", delivery.number, delivery.channel, error)
    try:
        deliveries.record(
            delivery,
            attempt=attempt,
            at=began_at,
            now=timezone.now(),
            code=code,
            error=error,
            final=final,
        )
    except LostLease as lost:
        logger.warning("%s", lost)


def document(delivery: Delivery) -> dict[str, Any]:
    """The JSON document that is posted."""
    return {
        "delivery": str(delivery.number),
        "occasion": delivery.occasion,
        "cluster": delivery.channel.cluster.name,
        "created_at": delivery.created_at.isoformat(),
        "url": f"{settings.HELIX_URL}{reverse('alerts')}?cluster={delivery.channel.cluster_id}",
        "alerts": delivery.told,
    }


def _try(delivery: Delivery, attempt: int, now: datetime) -> int:
    channel = delivery.channel
    if channel.way == Channel.Way.EMAIL:
        _mail(delivery)
        return 250
    body = json.dumps(document(delivery), separators=(",", ":")).encode()
    secret, number = signing.unseal(channel.sealed_secret), str(delivery.number)
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "HelixWeb",
        "X-Helix-Occasion": delivery.occasion,
        "X-Helix-Attempt": str(attempt),
        signing.DELIVERY_HEADER: number,
        signing.HEADER: signing.signature(secret, body=body, delivery=number, at=now),
    }
    return post(channel.url, body=body, headers=headers, allowed=settings.HELIX_WEBHOOK_NETWORKS)


def _mail(delivery: Delivery) -> None:
    """Send a delivery as mail. Raises TargetRefused, errors of smtplib, OSError."""
    if not settings.EMAIL_HOST:
        raise TargetRefused("no mail server is set; put its name into EMAIL_HOST")
    channel = delivery.channel
    lines = [_line(alert) for alert in delivery.told[:MOST_LINES]]
    if len(delivery.told) > MOST_LINES:
        lines.append(f"… and {len(delivery.told) - MOST_LINES} more")
    EmailMessage(
        subject=_subject(delivery),
        body="\n".join([*lines, "", str(document(delivery)["url"])]),
        to=channel.addresses,
        headers={"Message-ID": f"<{delivery.number}@helixweb>"},
    ).send()


def _subject(delivery: Delivery) -> str:
    cluster = delivery.channel.cluster.name
    if delivery.occasion == Delivery.Occasion.TEST:
        return f"[HelixWeb] {cluster}: a test"
    if delivery.occasion == Delivery.Occasion.ALIVE:
        return f"[HelixWeb] {cluster}: alerts are being looked after"
    firing = sum(alert["state"] == "firing" for alert in delivery.told)
    over = len(delivery.told) - firing
    counts = [f"{firing} firing"] * bool(firing) + [f"{over} over"] * bool(over)
    return f"[HelixWeb] {cluster}: {', '.join(counts)}"


def _line(alert: Mapping[str, Any]) -> str:
    return f"{alert['state']} ({alert['severity']}) {alert['rule']}: {alert['text']}"
