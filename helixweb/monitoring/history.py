"""Reads recorded metrics: the newest sample, and points over time. Reads only."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Avg, F, FloatField, Max

from helixweb.inventory.models import Cluster
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.services import KEEP, KEEP_ALL, THINNED_STEP_S

MAX_POINTS = 900
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
    return MetricSample.objects.filter(cluster=cluster).order_by("-second").first()


def age_s(sample: MetricSample, *, now: datetime) -> float:
    """Seconds since the report."""
    return max(0.0, (now - sample.at).total_seconds())


def current_sample(cluster: Cluster, *, now: datetime) -> MetricSample | None:
    """The last one kept unless the coordinator has fallen silent since."""
    sample = latest_sample(cluster)
    return sample if sample and age_s(sample, now=now) <= SILENT_AFTER_S else None


def has_simulated(cluster: Cluster, *, since: datetime) -> bool:
    """Whether any sample since then is of simulated traffic."""
    return MetricSample.objects.filter(
        cluster=cluster, second__gte=int(since.timestamp()), simulated_plan__isnull=False
    ).exists()


def smallest_step_s(*, since: datetime, now: datetime) -> int:
    """The step with at most MAX_POINTS from `since` to `now`, no finer than what is kept."""
    age = min(max(now - since, timedelta(0)), KEEP)
    step_s = max(1, -(-int(age.total_seconds()) // MAX_POINTS))
    return max(step_s, THINNED_STEP_S) if age > KEEP_ALL else step_s


def points(cluster: Cluster, *, since: datetime, until: datetime, step_s: int) -> list[Point]:
    """Oldest first: means of rates, gauges and medians, maxima of 95th percentiles, each step.

    Where no report came for a while stands one point without values, so that lines break there;
    also at the end, so that an old value is not taken for the present one.
    """
    bucket = F("second") - F("second") % step_s
    means: dict[str, Any] = {f"step_{name}": Avg(name, output_field=FloatField()) for name in MEANS}
    maxima = {f"step_{name}": Max(name) for name in MAXIMA}
    rows: Iterable[Any] = (
        MetricSample.objects.filter(
            cluster=cluster, second__gte=int(since.timestamp()), second__lte=int(until.timestamp())
        )
        .annotate(bucket=bucket)
        .order_by("bucket")
        .values("bucket")
        .annotate(**means, **maxima)
    )
    found: list[Point] = []
    longest_s = max(4.0, 2.5 * step_s)
    for row in rows:
        at = datetime.fromtimestamp(row["bucket"], tz=UTC)
        if found and (at - found[-1].at).total_seconds() > longest_s:
            found.append(Point(at=found[-1].at + (at - found[-1].at) / 2, values=None))
        found.append(Point(at=at, values={name: row[f"step_{name}"] for name in FIELDS}))
    if found and (until - found[-1].at).total_seconds() > longest_s:
        found.append(Point(at=until, values=None))
    return found
