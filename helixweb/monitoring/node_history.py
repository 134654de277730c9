"""One node over the last minutes, from the samples of its cluster. Reads only."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext as _

from helixweb.charts.chart import Chart
from helixweb.charts.time_lines import time_lines
from helixweb.common.json_fields import member
from helixweb.inventory.models import Node
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.services import DETAIL_EVERY_S

SHOWN = timedelta(minutes=15)
# A sample tells of all nodes of a cluster: of a large cluster fewer are read. Seconds by nodes.
STEPS_S = ((500, 30), (200, 15), (0, DETAIL_EVERY_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHistory:
    """Charts from `SHOWN` ago until now; `is_empty`: nothing was reported then."""

    busy: Chart
    tokens: Chart
    is_empty: bool


def node_history(node: Node, *, now: datetime) -> NodeHistory:
    """A point every few seconds; nothing where the coordinator or the stage said nothing."""
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
        busy.append(_percent(said["busy_ratio"]))
        total, used = said["kv_total_pages"], said["kv_used_pages"]
        kv.append(100.0 * used / total if total and used is not None else None)
        tokens.append(said["tokens_per_s"])
    computing, in_use = _("time computing"), _("KV cache in use")
    return NodeHistory(
        busy=time_lines(times, {computing: busy, in_use: kv}, unit="%"),
        tokens=time_lines(times, {_("prompt and output"): tokens}, unit=_("tokens/s")),
        is_empty=not times,
    )


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else 100.0 * ratio
