"""Metrics of many days: samples rolled up into steps of minutes before they are forgotten."""

from datetime import datetime

from django.db.models import Max, Q

from helixweb.inventory.models import Cluster
from helixweb.monitoring.history import KEEP_ROLLUPS, ROLLUP_STEP_S, by_step
from helixweb.monitoring.models import MetricRollup, MetricSample


def roll_up(now: datetime) -> None:
    """Make the rows of every whole step that has none yet, and drop those of long ago."""
    until = int(now.timestamp()) // ROLLUP_STEP_S * ROLLUP_STEP_S
    for cluster in Cluster.unscoped.all():
        newest = MetricRollup.unscoped.filter(cluster=cluster).aggregate(Max("second"))
        since = 0 if newest["second__max"] is None else newest["second__max"] + ROLLUP_STEP_S
        MetricRollup.objects.bulk_create(
            _rows(cluster, since=since, until=until), ignore_conflicts=True
        )
    MetricRollup.unscoped.filter(second__lt=int((now - KEEP_ROLLUPS).timestamp())).delete()


def _rows(cluster: Cluster, *, since: int, until: int) -> list[MetricRollup]:
    samples = MetricSample.unscoped.filter(cluster=cluster, second__gte=since, second__lt=until)
    simulated = Max("second", filter=Q(simulated_plan__isnull=False))
    steps = by_step(samples, ROLLUP_STEP_S, last=Max("second"), last_simulated=simulated)
    newest = samples.filter(second__in=[step["last"] for step in steps])
    totals = dict(newest.values_list("second", "latency_totals"))
    return [
        MetricRollup(
            cluster=cluster,
            second=step["step"],
            simulated=step["last_simulated"] is not None,
            values={**step["values"], "latency_totals": totals.get(step["last"], {})},
        )
        for step in steps
    ]
