"""Prometheus metrics of alerts and their deliveries."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db.models import Count
from prometheus_client import Metric

from helixweb.alerting.kinds import Severity
from helixweb.alerting.models import OPEN, Alert, Channel, Delivery
from helixweb.inventory.models import Cluster
from runtime.protocol.exposition import gauge


def collect(now: datetime, scope: Any) -> Iterator[Metric]:
    """Open alerts by cluster, deliveries of the last month by status."""
    found = Alert.objects.within(scope).filter(state__in=OPEN).order_by()
    counts = {
        (cluster, state, severity): count
        for cluster, state, severity, count in found.values_list(
            "cluster__name", "state", "severity"
        ).annotate(Count("pk"))
    }
    yield gauge(
        "helix_alerts",
        "Alerts of a cluster that are not over",
        [
            (
                {"cluster": name, "state": state, "severity": severity},
                counts.get((name, state, severity), 0),
            )
            for name in Cluster.objects.within(scope).values_list("name", flat=True)
            for state in OPEN
            for severity in Severity.values
        ],
    )
    delivered = {
        (way, status): count
        for way, status, count in Delivery.objects.within(scope)
        .order_by()
        .values_list("channel__way", "status")
        .annotate(Count("pk"))
    }
    yield gauge(
        "helix_alert_deliveries",
        "Deliveries that are kept, by what became of them",
        [
            ({"kind": way, "state": status}, delivered.get((way, status), 0))
            for way in Channel.Way.values
            for status in Delivery.Status.values
        ],
    )
