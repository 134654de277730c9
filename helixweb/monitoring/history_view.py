"""What the monitor shows over time: points into lines, latencies into heat maps."""

import dataclasses
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.translation import gettext_lazy, gettext_noop

from helixweb.charts.chart import Chart
from helixweb.charts.latency import latency
from helixweb.charts.latency_heat import latency_heat
from helixweb.charts.markers import Marker, marked
from helixweb.charts.throughput import requests_in_system, throughput
from helixweb.charts.time_lines import small
from helixweb.deployment.models import Deployment
from helixweb.inventory.models import Cluster
from helixweb.monitoring.history import has_simulated, points, smallest_step_s
from helixweb.monitoring.latency_counts import latency_columns
from runtime.protocol.control import LATENCY_BOUNDS_S

MARKERS = 20
KIND_TITLES = {
    "ttft": gettext_lazy("Time to first token"),
    "itl": gettext_lazy("Time between tokens (ITL)"),
    "tpot": gettext_lazy("Time per output token (TPOT)"),
    "e2e": gettext_lazy("End to end"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """How far back the charts go."""

    name: str
    title: str
    length: timedelta


RANGES = (
    Range(name="5m", title=gettext_noop("5 minutes"), length=timedelta(minutes=5)),
    Range(name="15m", title=gettext_noop("15 minutes"), length=timedelta(minutes=15)),
    Range(name="1h", title=gettext_noop("1 hour"), length=timedelta(hours=1)),
    Range(name="6h", title=gettext_noop("6 hours"), length=timedelta(hours=6)),
    Range(name="24h", title=gettext_noop("24 hours"), length=timedelta(hours=24)),
    Range(name="7d", title=gettext_noop("7 days"), length=timedelta(days=7)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Charts over time, a point every `step_s` seconds; `simulated`: some are of no coordinator."""

    range: Range
    step_s: int
    simulated: bool
    ttft: Chart
    itl: Chart
    tpot: Chart
    e2e: Chart
    tokens: Chart
    requests: Chart
    deployed: tuple[Marker, ...]


def history(cluster: Cluster, range_: Range, *, now: datetime) -> History:
    """From `range_` ago until now."""
    since = now - range_.length
    step_s = smallest_step_s(since=since, now=now)
    found = points(cluster, since=since, until=now, step_s=step_s)
    times = [timezone.localtime(point.at) for point in found]
    ends = [since.isoformat(), now.isoformat()]
    deployed = _deployed(cluster, since=since)

    def values(name: str) -> list[float | None]:
        return [point[name] for point in found]

    def over(chart: Chart) -> Chart:
        return _over(ends, marked(chart, deployed))

    def latencies(kind: str) -> Chart:
        return over(latency(times, p50_s=values(f"{kind}_p50_s"), p95_s=values(f"{kind}_p95_s")))

    return History(
        range=range_,
        step_s=step_s,
        simulated=has_simulated(cluster, since=since),
        deployed=deployed,
        ttft=latencies("ttft"),
        itl=latencies("itl"),
        tpot=latencies("tpot"),
        e2e=latencies("e2e"),
        tokens=over(
            throughput(
                times,
                output_tokens_per_s=values("output_tokens_per_s"),
                prompt_tokens_per_s=values("prompt_tokens_per_s"),
            ),
        ),
        requests=over(
            requests_in_system(times, running=values("running"), waiting=values("waiting")),
        ),
    )


def small_history(cluster: Cluster, range_: Range, *, now: datetime) -> History:
    """The same; its charts of tokens, TTFT and ITL are for a few dozen pixels."""
    whole = history(cluster, range_, now=now)
    return dataclasses.replace(
        whole, tokens=small(whole.tokens), ttft=small(whole.ttft), itl=small(whole.itl)
    )


def heat(cluster: Cluster, kind: str, range_: Range, *, now: datetime) -> Chart:
    """Latencies of `kind` (a key of KIND_TITLES) from `range_` ago until now."""
    columns = latency_columns(cluster, kind, since=now - range_.length, until=now)
    return latency_heat(
        [column.at for column in columns],
        [column.counts for column in columns],
        bounds_s=LATENCY_BOUNDS_S,
    )


def _deployed(cluster: Cluster, *, since: datetime) -> tuple[Marker, ...]:
    """The newest deployments since then."""
    rows = Deployment.objects.filter(cluster=cluster, created_at__gte=since).order_by("-pk")
    newest = rows.values_list("pk", "created_at")[:MARKERS]
    return tuple(Marker(at=at, label=f"#{pk}") for pk, at in reversed(newest))


def _over(ends: list[str], chart: Chart) -> Chart:
    """The chart on an axis from end to end."""
    layout = chart.figure["layout"]
    figure = {
        **chart.figure,
        "layout": {**layout, "xaxis": {**layout["xaxis"], "range": ends}},
    }
    return dataclasses.replace(chart, figure=figure)
