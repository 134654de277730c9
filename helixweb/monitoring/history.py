"""Recorded metrics: points and latencies over time, roll-ups of many days."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import mean
from typing import Any, NamedTuple

from django.db.models import Avg, F, FloatField, Max, OuterRef, QuerySet, Subquery

from helixweb.inventory.models import Cluster, Coordinator
from helixweb.monitoring.models import MetricRollup, MetricSample
from helixweb.monitoring.services import KEEP_ALL, THINNED_STEP_S

MAX_POINTS = 900
MOST_COLUMNS = 60
# Samples are stored for a day; roll-ups over steps of this length, for a week.
ROLLUP_STEP_S = 300
KEEP_ROLLUPS = timedelta(days=7)
# Longer series are of roll-ups, and of samples only where there are none yet.
MOST_OF_SAMPLES = timedelta(hours=6)
# Reports come about once a second; after this long without one nothing is known of now.
SILENT_AFTER_S = 5.0
MEANS = (
    "output_tokens_per_s", "prompt_tokens_per_s", "ttft_p50_s", "itl_p50_s", "tpot_p50_s",
    "e2e_p50_s", "running", "waiting",
)  # fmt: skip
MAXIMA = ("ttft_p95_s", "itl_p95_s", "tpot_p95_s", "e2e_p95_s")
FIELDS = (*MEANS, *MAXIMA)

# FIELDS, and of a roll-up "latency_totals".
Values = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Metrics of one step from `at` on; `values` None: nothing was reported then."""

    at: datetime
    values: Values | None

    def __getitem__(self, name: str) -> float | None:
        return None if self.values is None else self.values[name]


class Column(NamedTuple):
    """Latencies counted by interval in the step that begins `at`; None: nothing is known of it."""

    at: datetime
    counts: Sequence[int] | None


def with_newest(clusters: QuerySet[Cluster], *, now: datetime) -> Iterable[Any]:
    """Each with `newest_output` and `newest_plan`, tokens/s and simulated plan of its current
    sample, None where there is none; one query for all."""
    since = now - timedelta(seconds=SILENT_AFTER_S)
    current = MetricSample.unscoped.filter(
        cluster=OuterRef("pk"), second__gte=int(since.timestamp()), at__gte=since
    ).order_by("-second")
    return clusters.annotate(
        newest_output=Subquery(current.values("output_tokens_per_s")[:1]),
        newest_plan=Subquery(current.values("simulated_plan")[:1]),
    )


def has_simulated(cluster: Cluster, *, since: datetime) -> bool:
    """Whether any sample since then is of simulated traffic."""
    second = int(since.timestamp())
    samples = MetricSample.unscoped.filter(
        cluster=cluster, second__gte=second, simulated_plan__isnull=False
    )
    rolled_up = MetricRollup.unscoped.filter(cluster=cluster, second__gte=second, simulated=True)
    return samples.exists() or rolled_up.exists()


def smallest_step_s(*, since: datetime, now: datetime, most: int = MAX_POINTS) -> int:
    """The step with at most `most` points from `since` to `now`, no finer than the stored data."""
    age = min(max(now - since, timedelta(0)), KEEP_ROLLUPS)
    step_s = max(1, -(-int(age.total_seconds()) // most))
    if age > MOST_OF_SAMPLES:
        return -(-step_s // ROLLUP_STEP_S) * ROLLUP_STEP_S
    return max(step_s, THINNED_STEP_S) if age > KEEP_ALL else step_s


def points(cluster: Cluster, *, since: datetime, until: datetime, step_s: int) -> list[Point]:
    """A point per step, oldest first: means of rates, gauges and medians, highest 95th percentiles.

    A gap without reports has one point without values, so that lines break there; also at the end,
    so that an old value is not taken for the present one.
    """
    found: list[Point] = []
    longest_s = max(4.0, 2.5 * step_s)
    rolled_up, samples = _recorded(cluster, since=since, until=until, step_s=step_s)
    joined = {second: _joined(values) for second, values in rolled_up.items()}
    for second, values in sorted((_means(samples, step_s) | joined).items()):
        at = datetime.fromtimestamp(second, tz=UTC)
        if found and (at - found[-1].at).total_seconds() > longest_s:
            found.append(Point(at=found[-1].at + (at - found[-1].at) / 2, values=None))
        found.append(Point(at=at, values=values))
    if found and (until - found[-1].at).total_seconds() > longest_s:
        found.append(Point(at=until, values=None))
    return found


def latency_columns(
    cluster: Cluster, kind: str, *, since: datetime, until: datetime
) -> list[Column]:
    """Counts of `kind` (ttft, itl, tpot, e2e) per step, oldest first.

    A restarted coordinator counts from zero. If there are others, the sum has fallen by its
    previous count, which is unknown: None.
    """
    step_s = smallest_step_s(since=since, now=until, most=MOST_COLUMNS)
    is_alone = Coordinator.unscoped.filter(cluster=cluster).count() < 2
    columns: list[Column] = []
    before: tuple[int, Sequence[int]] | None = None
    rolled_up, samples = _recorded(cluster, since=since, until=until, step_s=step_s)
    last = {second: values[-1].get("latency_totals", {}) for second, values in rolled_up.items()}
    for second, counted in sorted((last or _last_totals(samples, step_s)).items()):
        totals = counted.get(kind)
        if not totals:
            continue
        if before is not None:
            grown: Sequence[int] | None = None
            if second - before[0] <= 3 * step_s:
                grown = [later - earlier for later, earlier in zip(totals, before[1], strict=True)]
                if min(grown) < 0:
                    grown = totals if is_alone else None
            columns.append(Column(datetime.fromtimestamp(second, tz=UTC), grown))
        before = second, totals
    return columns


def roll_up(now: datetime) -> None:
    """Make the roll-up of every whole step that has none yet, and drop those of long ago."""
    until = int(now.timestamp()) // ROLLUP_STEP_S * ROLLUP_STEP_S
    for cluster in Cluster.unscoped.all():
        rolled_up = MetricRollup.unscoped.filter(cluster=cluster)
        newest = rolled_up.aggregate(Max("second"))["second__max"]
        samples = MetricSample.unscoped.filter(
            cluster=cluster,
            second__gte=0 if newest is None else newest + ROLLUP_STEP_S,
            second__lt=until,
        )
        simulated = samples.filter(simulated_plan__isnull=False)
        simulated_steps = {row["step"] for row in _by_step(simulated, ROLLUP_STEP_S)}
        totals = _last_totals(samples, ROLLUP_STEP_S)
        MetricRollup.objects.bulk_create(
            [
                MetricRollup(
                    cluster=cluster,
                    second=second,
                    simulated=second in simulated_steps,
                    values={**values, "latency_totals": totals[second]},
                )
                for second, values in _means(samples, ROLLUP_STEP_S).items()
            ],
            ignore_conflicts=True,
        )
    MetricRollup.unscoped.filter(second__lt=int((now - KEEP_ROLLUPS).timestamp())).delete()


def _recorded(
    cluster: Cluster, *, since: datetime, until: datetime, step_s: int
) -> tuple[dict[int, list[Values]], QuerySet[MetricSample]]:
    """Roll-ups by the second a step begins, of a long time; and samples where there are none."""
    begin, end = int(since.timestamp()), int(until.timestamp())
    together: dict[int, list[Values]] = {}
    if until - since > MOST_OF_SAMPLES:
        rows = MetricRollup.unscoped.filter(cluster=cluster, second__gte=begin, second__lte=end)
        for second, values in rows.order_by("second").values_list("second", "values"):
            together.setdefault(second - second % step_s, []).append(values)
            begin = second + ROLLUP_STEP_S
    samples = MetricSample.unscoped.filter(cluster=cluster, second__gte=begin, second__lte=end)
    return together, samples


def _joined(rolled_up: Sequence[Values]) -> Values:
    """Joins several roll-ups: means of means, maxima of maxima."""
    values: Values = {}
    for name in FIELDS:
        known = [each[name] for each in rolled_up if each.get(name) is not None]
        values[name] = (max if name in MAXIMA else mean)(known) if known else None
    return values


def _by_step(samples: QuerySet[MetricSample], step_s: int, **aggregates: Any) -> Iterable[Any]:
    """The aggregates of each step, which begins at second "step"."""
    step = F("second") - F("second") % step_s
    return samples.annotate(step=step).order_by("step").values("step").annotate(**aggregates)


def _means(samples: QuerySet[MetricSample], step_s: int) -> dict[int, Values]:
    """FIELDS by the second a step begins."""
    means: dict[str, Any] = {f"step_{name}": Avg(name, output_field=FloatField()) for name in MEANS}
    maxima = {f"step_{name}": Max(name) for name in MAXIMA}
    return {
        row["step"]: {name: row[f"step_{name}"] for name in FIELDS}
        for row in _by_step(samples, step_s, **means, **maxima)
    }


def _last_totals(samples: QuerySet[MetricSample], step_s: int) -> dict[int, dict[str, Any]]:
    """The last `latency_totals` of each step, by the second that it begins."""
    last = {row["last"]: row["step"] for row in _by_step(samples, step_s, last=Max("second"))}
    rows = samples.filter(second__in=list(last)).values_list("second", "latency_totals")
    return {last[second]: totals for second, totals in rows}
