"""Reads recorded metrics: the newest sample, and points over time. Reads only."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import mean
from typing import Any

from django.db.models import Avg, F, FloatField, Max, OuterRef, QuerySet, Subquery

from helixweb.inventory.models import Cluster
from helixweb.monitoring.models import MetricRollup, MetricSample
from helixweb.monitoring.services import KEEP_ALL, THINNED_STEP_S

MAX_POINTS = 900
# Samples are kept for a day; what they said in steps of this length, for a week.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Metrics of one step from `at` on; `values` None: nothing was reported then."""

    at: datetime
    values: dict[str, float | None] | None

    def __getitem__(self, name: str) -> float | None:
        return None if self.values is None else self.values[name]


def latest_sample(cluster: Cluster) -> MetricSample | None:
    """The last one kept, however old."""
    return MetricSample.unscoped.filter(cluster=cluster).order_by("-second").first()


def age_s(sample: MetricSample, *, now: datetime) -> float:
    """Seconds since the report."""
    return max(0.0, (now - sample.at).total_seconds())


def current_sample(cluster: Cluster, *, now: datetime) -> MetricSample | None:
    """The last one kept unless the coordinator has fallen silent since."""
    return if_current(latest_sample(cluster), now=now)


def if_current(latest: MetricSample | None, *, now: datetime) -> MetricSample | None:
    """The last one kept, for who has read it already."""
    return latest if latest and age_s(latest, now=now) <= SILENT_AFTER_S else None


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


def smallest_step_s(*, since: datetime, now: datetime) -> int:
    """The step with at most MAX_POINTS from `since` to `now`, no finer than what is kept."""
    age = min(max(now - since, timedelta(0)), KEEP_ROLLUPS)
    step_s = max(1, -(-int(age.total_seconds()) // MAX_POINTS))
    if age > MOST_OF_SAMPLES:
        return -(-step_s // ROLLUP_STEP_S) * ROLLUP_STEP_S
    return max(step_s, THINNED_STEP_S) if age > KEEP_ALL else step_s


def points(cluster: Cluster, *, since: datetime, until: datetime, step_s: int) -> list[Point]:
    """Oldest first: means of rates, gauges and medians, maxima of 95th percentiles, each step.

    Where no report came for a while stands one point without values, so that lines break there;
    also at the end, so that an old value is not taken for the present one.
    """
    rows = _rolled_up(cluster, since, until) if until - since > MOST_OF_SAMPLES else []
    sampled_since = rows[-1].second + ROLLUP_STEP_S if rows else int(since.timestamp())
    moments = _by_step(rows, step_s) + _sampled(cluster, sampled_since, until, step_s)
    found: list[Point] = []
    longest_s = max(4.0, 2.5 * step_s)
    for second, values in moments:
        at = datetime.fromtimestamp(second, tz=UTC)
        if found and (at - found[-1].at).total_seconds() > longest_s:
            found.append(Point(at=found[-1].at + (at - found[-1].at) / 2, values=None))
        if not found or found[-1].at < at:
            found.append(Point(at=at, values=values))
    if found and (until - found[-1].at).total_seconds() > longest_s:
        found.append(Point(at=until, values=None))
    return found


_Values = dict[str, float | None]


def by_step(samples: QuerySet[MetricSample], step_s: int, **more: Any) -> list[dict[str, Any]]:
    """By the second a step begins, in "step": MEANS and MAXIMA, and `more` aggregates."""
    means: dict[str, Any] = {f"step_{name}": Avg(name, output_field=FloatField()) for name in MEANS}
    maxima = {f"step_{name}": Max(name) for name in MAXIMA}
    steps: Iterable[Any] = (
        samples.annotate(step=F("second") - F("second") % step_s)
        .order_by("step")
        .values("step")
        .annotate(**means, **maxima, **more)
    )
    return [
        {
            "step": row["step"],
            "values": {name: row[f"step_{name}"] for name in FIELDS},
            **{name: row[name] for name in more},
        }
        for row in steps
    ]


def _sampled(
    cluster: Cluster, since: int, until: datetime, step_s: int
) -> list[tuple[int, _Values]]:
    """(second its step begins, values), from samples."""
    samples = MetricSample.unscoped.filter(
        cluster=cluster, second__gte=since, second__lte=int(until.timestamp())
    )
    return [(row["step"], row["values"]) for row in by_step(samples, step_s)]


def _rolled_up(cluster: Cluster, since: datetime, until: datetime) -> list[MetricRollup]:
    rows = MetricRollup.unscoped.filter(
        cluster=cluster, second__gte=int(since.timestamp()), second__lte=int(until.timestamp())
    )
    return list(rows.order_by("second"))


def _by_step(rows: Iterable[MetricRollup], step_s: int) -> list[tuple[int, _Values]]:
    """The same of roll-ups: means of means, maxima of maxima."""
    steps: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        steps.setdefault(row.second - row.second % step_s, []).append(row.values)
    found = []
    for second, together in steps.items():
        values: _Values = {}
        for name in FIELDS:
            known = [each[name] for each in together if each.get(name) is not None]
            join = max if name in MAXIMA else mean
            values[name] = join(known) if known else None
        found.append((second, values))
    return found
