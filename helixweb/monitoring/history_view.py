"""What the monitor shows over time: points into lines, latencies into heat maps."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from helixweb.charts.chart import Chart
from helixweb.charts.latency_heat import latency_heat
from helixweb.charts.time_lines import Marker, between, latency, small, time_lines
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
    """Charts over time, a point every `step_s` seconds: of "tokens", "requests", and each of
    KIND_TITLES. `simulated`: some are of no coordinator."""

    range: Range
    step_s: int
    simulated: bool
    charts: Mapping[str, Chart]
    deployed: tuple[Marker, ...]


def history(cluster: Cluster, range_: Range, *, now: datetime) -> History:
    """From `range_` ago until now."""
    since = now - range_.length
    step_s = smallest_step_s(since=since, now=now)
    found = points(cluster, since=since, until=now, step_s=step_s)
    times = [timezone.localtime(point.at) for point in found]
    deployed = _deployed(cluster, since=since)

    def values(name: str) -> list[float | None]:
        return [point[name] for point in found]

    tokens = {
        _("output"): values("output_tokens_per_s"),
        _("prompt"): values("prompt_tokens_per_s"),
    }
    requests = {_("running"): values("running"), _("waiting"): values("waiting")}
    charts = {
        "tokens": time_lines(times, tokens, unit=_("tokens/s")),
        "requests": time_lines(times, requests, unit=_("requests")),
        **{
            kind: latency(times, p50_s=values(f"{kind}_p50_s"), p95_s=values(f"{kind}_p95_s"))
            for kind in KIND_TITLES
        },
    }
    return History(
        range=range_,
        step_s=step_s,
        simulated=has_simulated(cluster, since=since),
        deployed=deployed,
        charts={
            name: between(chart, since, now, markers=deployed) for name, chart in charts.items()
        },
    )


def small_history(cluster: Cluster, range_: Range, *, now: datetime) -> History:
    """The same in charts of a few dozen pixels."""
    whole = history(cluster, range_, now=now)
    charts = {name: small(chart) for name, chart in whole.charts.items()}
    return dataclasses.replace(whole, charts=charts)


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
    rows = Deployment.unscoped.filter(cluster=cluster, created_at__gte=since).order_by("-pk")
    newest = rows.values_list("pk", "created_at")[:MARKERS]
    return tuple(Marker(at=at, label=f"#{pk}") for pk, at in reversed(newest))
