"""Metrics of many days: samples rolled up into steps of minutes before they are forgotten."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db.models import Avg, F, FloatField, Max, Q

from helixweb.inventory.models import Cluster
from helixweb.monitoring.history import KEEP_ROLLUPS, MAXIMA, MEANS, ROLLUP_STEP_S
from helixweb.monitoring.models import MetricRollup, MetricSample


def roll_up(now: datetime) -> None:
    """Make the rows of every whole step that has none yet, and drop those of long ago."""
    until = int(now.timestamp()) // ROLLUP_STEP_S * ROLLUP_STEP_S
    for cluster in Cluster.objects.all():
        newest = MetricRollup.objects.filter(cluster=cluster).aggregate(Max("second"))
        since = 0 if newest["second__max"] is None else newest["second__max"] + ROLLUP_STEP_S
        MetricRollup.objects.bulk_create(
            _rows(cluster, since=since, until=until), ignore_conflicts=True
        )
    MetricRollup.objects.filter(second__lt=int((now - KEEP_ROLLUPS).timestamp())).delete()


def _rows(cluster: Cluster, *, since: int, until: int) -> list[MetricRollup]:
    means: dict[str, Any] = {f"step_{name}": Avg(name, output_field=FloatField()) for name in MEANS}
    maxima = {f"step_{name}": Max(name) for name in MAXIMA}
    samples = MetricSample.objects.filter(cluster=cluster, second__gte=since, second__lt=until)
    found: Iterable[Any] = (
        samples.annotate(step=F("second") - F("second") % ROLLUP_STEP_S)
        .order_by("step")
        .values("step")
        .annotate(
            last=Max("second"),
            last_simulated=Max("second", filter=Q(simulated_plan__isnull=False)),
            **means,
            **maxima,
        )
    )
    rows = list(found)
    totals = dict(
        samples.filter(second__in=[row["last"] for row in rows]).values_list(
            "second", "latency_totals"
        )
    )
    return [
        MetricRollup(
            cluster=cluster,
            second=row["step"],
            simulated=row["last_simulated"] is not None,
            values={
                **{name: row[f"step_{name}"] for name in (*MEANS, *MAXIMA)},
                "latency_totals": totals.get(row["last"], {}),
            },
        )
        for row in rows
    ]
