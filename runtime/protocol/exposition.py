"""Prometheus' text format, written from numbers that are there; what is told is read at the scrape.

Families come from whoever has the numbers, so that no count is kept twice and a page and a chart
never disagree.
"""

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, str]
Samples = Iterable[tuple[Labels, float | None]]


def gauge(name: str, help_: str, samples: Samples) -> Metric:
    """What may rise and fall; a value that is not known (None) has no line."""
    return _with(GaugeMetricFamily, name, help_, samples)


def counter(name: str, help_: str, samples: Samples) -> Metric:
    """What only grows; `name` ends with _total."""
    return _with(CounterMetricFamily, name, help_, samples)


def info(name: str, help_: str, labels: Labels) -> Metric:
    """A gauge that is 1; `name` without the _info that it ends with."""
    return InfoMetricFamily(name, help_, value=dict(labels))


def histogram(
    name: str,
    help_: str,
    labels: Labels,
    *,
    bounds: Sequence[float],
    counts: Sequence[int],
    total: float,
) -> Metric:
    """`counts` are of each interval that `bounds` end, and above them; `total` is their sum."""
    buckets: list[tuple[str, float]] = []
    below = 0
    for bound, count in zip([*map(str, bounds), "+Inf"], counts, strict=True):
        below += count
        buckets.append((bound, below))
    family = HistogramMetricFamily(name, help_, labels=list(labels))
    family.add_metric(list(labels.values()), buckets, sum_value=total)
    return family


def states(name: str, help_: str, labels: Labels, *, state: str, known: Iterable[str]) -> Metric:
    """One line for each state that there is, 1 at the one that holds."""
    return gauge(
        name,
        help_,
        [({**labels, "state": each}, float(each == state)) for each in known],
    )


def page(families: Iterable[Metric]) -> bytes:
    """All of them; those of one name, from several sources, as one."""
    merged: dict[tuple[str, str], Metric] = {}
    for family in families:
        known = merged.setdefault((family.name, family.type), family)
        if known is not family:
            known.samples.extend(family.samples)
    registry = CollectorRegistry()
    registry.register(_Ready([each for each in merged.values() if each.samples]))
    return generate_latest(registry)


class _Ready(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _with(
    family: type[GaugeMetricFamily] | type[CounterMetricFamily],
    name: str,
    help_: str,
    samples: Samples,
) -> Metric:
    found = [(labels, value) for labels, value in samples if value is not None]
    made = family(name, help_, labels=list(found[0][0]) if found else [])
    for labels, value in found:
        made.add_metric(list(labels.values()), value)
    return made
