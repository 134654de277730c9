"""Charts over time for pages: points of a cluster or node as lines, latencies as heat maps."""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from helixweb.charts.chart import Chart
from helixweb.charts.heat_maps import latency_heat
from helixweb.charts.time_lines import Marker, between, latency, small, time_lines
from helixweb.common.json_fields import member
from helixweb.deployment.models import Deployment
from helixweb.inventory.models import Cluster, Node
from helixweb.monitoring.history import (
    has_simulated,
    latency_columns,
    points,
    smallest_step_s,
)
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.moment import Moment
from helixweb.monitoring.services import DETAIL_EVERY_S
from runtime.protocol.control import LATENCY_BOUNDS_S

MARKERS = 20
SHOWN = timedelta(minutes=15)
# A sample has all nodes of a cluster: of a large cluster fewer are read. Seconds by nodes.
STEPS_S = ((500, 30), (200, 15), (0, DETAIL_EVERY_S))
KIND_TITLES = {
    "ttft": gettext_lazy("Time to first token"),
    "itl": gettext_lazy("Time between tokens (ITL)"),
    "tpot": gettext_lazy("Time per output token (TPOT)"),
    "e2e": gettext_lazy("End to end"),
}


class Range(NamedTuple):
    """The time range of the charts."""

    name: str
    title: str
    length: timedelta


RANGES = (
    Range("5m", gettext_noop("5 minutes"), timedelta(minutes=5)),
    Range("15m", gettext_noop("15 minutes"), timedelta(minutes=15)),
    Range("1h", gettext_noop("1 hour"), timedelta(hours=1)),
    Range("6h", gettext_noop("6 hours"), timedelta(hours=6)),
    Range("24h", gettext_noop("24 hours"), timedelta(hours=24)),
    Range("7d", gettext_noop("7 days"), timedelta(days=7)),
)


def history(moment: Moment, range_: Range, *, is_small: bool = False) -> dict[str, Any]:
    """Charts from `range_` ago until now, a point every `step_s` seconds: of "tokens", "requests",
    and each of KIND_TITLES; small ones are of a few dozen pixels. `simulated`: some points are of
    no coordinator."""
    cluster, now = moment.cluster, moment.now
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
    for name, chart in charts.items():
        whole = between(chart, since, now, markers=deployed)
        charts[name] = small(whole) if is_small else whole
    return {
        "range": range_,
        "step_s": step_s,
        "simulated": has_simulated(cluster, since=since),
        "deployed": deployed,
        "charts": charts,
    }


def heat(moment: Moment, kind: str, range_: Range) -> Chart:
    """Latencies of `kind` (a key of KIND_TITLES) from `range_` ago until now."""
    columns = latency_columns(
        moment.cluster, kind, since=moment.now - range_.length, until=moment.now
    )
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


def node_history(node: Node, *, now: datetime) -> dict[str, Any]:
    """Charts from `SHOWN` ago until now, a point every few seconds; nothing where the coordinator
    or the stage said nothing. `is_empty`: nothing was reported then."""
    nodes = Node.unscoped.filter(cluster=node.cluster_id).count()
    step_s = next(step_s for least, step_s in STEPS_S if nodes >= least)
    rows: Any = (
        MetricSample.unscoped.filter(
            cluster=node.cluster_id, second__gte=int((now - SHOWN).timestamp())
        )
        .annotate(offset=F("second") % step_s)
        .filter(offset__lt=DETAIL_EVERY_S)
        .order_by("second")
        .values_list("second", member("nodes", node.name))
    )
    times, busy, kv, tokens = [], [], [], []
    for second, said in rows:
        if said is None:
            continue
        times.append(datetime.fromtimestamp(second, tz=timezone.get_current_timezone()))
        ratio, total, used = (
            said[key] for key in ("busy_ratio", "kv_total_pages", "kv_used_pages")
        )
        busy.append(None if ratio is None else 100.0 * ratio)
        kv.append(100.0 * used / total if total and used is not None else None)
        tokens.append(said["tokens_per_s"])
    computing, in_use = _("time computing"), _("KV cache in use")
    return {
        "busy": time_lines(times, {computing: busy, in_use: kv}, unit="%"),
        "tokens": time_lines(times, {_("prompt and output"): tokens}, unit=_("tokens/s")),
        "is_empty": not times,
    }
