"""How many latencies fell into which interval over time. Reads only."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db.models import F, Max

from helixweb.inventory.models import Cluster, Coordinator
from helixweb.monitoring.history import MOST_OF_SAMPLES, ROLLUP_STEP_S
from helixweb.monitoring.models import MetricRollup, MetricSample

MOST_COLUMNS = 60
KINDS = ("ttft", "itl", "tpot", "e2e")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What was counted in the step that begins `at`; None: nothing is known of it."""

    at: datetime
    counts: tuple[int, ...] | None


def latency_columns(
    cluster: Cluster, kind: str, *, since: datetime, until: datetime
) -> list[Column]:
    """Of `kind` (one of KINDS), oldest first, at most `MOST_COLUMNS` or so."""
    long_ago = until - since > MOST_OF_SAMPLES
    step_s = max(1, -(-int((until - since).total_seconds()) // MOST_COLUMNS))
    if long_ago:
        step_s = -(-step_s // ROLLUP_STEP_S) * ROLLUP_STEP_S
    totals = (_rolled_up if long_ago else _sampled)(cluster, kind, since, until, step_s)
    is_alone = Coordinator.unscoped.filter(cluster=cluster).count() < 2
    columns: list[Column] = []
    before: tuple[int, Sequence[int]] | None = None
    for second, counted in totals:
        counts = None
        if before is not None and second - before[0] <= 3 * step_s:
            counts = _difference(counted, before[1], is_alone=is_alone)
        if before is not None:
            at = datetime.fromtimestamp(second // step_s * step_s, tz=UTC)
            columns.append(Column(at=at, counts=counts))
        before = second, counted
    return columns


def _difference(
    now: Sequence[int], before: Sequence[int], *, is_alone: bool
) -> tuple[int, ...] | None:
    """What was counted between; a coordinator that was started anew counts from zero again.

    If it is not alone, the sum of all has fallen by what it had counted, which nobody knows now:
    None.
    """
    grown = tuple(later - earlier for later, earlier in zip(now, before, strict=True))
    if min(grown) >= 0:
        return grown
    return tuple(now) if is_alone else None


def _sampled(
    cluster: Cluster, kind: str, since: datetime, until: datetime, step_s: int
) -> Iterable[tuple[int, Sequence[int]]]:
    """The last sample of each step, and one before the first."""
    samples = MetricSample.unscoped.filter(
        cluster=cluster,
        second__gte=int(since.timestamp()) - step_s,
        second__lte=int(until.timestamp()),
        simulated_plan=None,
    )
    steps = (
        samples.annotate(step=F("second") - F("second") % step_s)
        .order_by("step")
        .values("step")
        .annotate(last=Max("second"))
        .values_list("last", flat=True)
    )
    rows = samples.filter(second__in=list(steps)).order_by("second")
    for second, totals in rows.values_list("second", "latency_totals"):
        if totals.get(kind):
            yield second, totals[kind]


def _rolled_up(
    cluster: Cluster, kind: str, since: datetime, until: datetime, step_s: int
) -> Iterable[tuple[int, Sequence[int]]]:
    rows = MetricRollup.unscoped.filter(
        cluster=cluster,
        second__gte=int(since.timestamp()) - step_s,
        second__lte=int(until.timestamp()),
    )
    last: dict[int, tuple[int, Sequence[int]]] = {}
    for second, values in rows.order_by("second").values_list("second", "values"):
        if values["latency_totals"].get(kind):
            last[second // step_s] = second, values["latency_totals"][kind]
    return last.values()
