"""Median and 95th percentile of a latency over time."""

from collections.abc import Sequence
from datetime import datetime

from helixweb.charts.chart import Chart
from helixweb.charts.quantities import duration_text
from helixweb.charts.time_lines import Line, time_lines


def latency(
    times: Sequence[datetime],
    *,
    p50_s: Sequence[float | None],
    p95_s: Sequence[float | None],
) -> Chart:
    """In seconds; trace 0 is p50, trace 1 p95. Ticks are "50ms" or "40s"; the summary writes
    values as the tiles do."""
    return time_lines(
        times,
        [
            Line(name="p50", values=p50_s, colour="var(--accent)"),
            Line(name="p95", values=p95_s, colour="var(--warn)", dash="dash"),
        ],
        unit="s",
        axis={"exponentformat": "SI", "minexponent": 0, "ticksuffix": "s"},
        hover="%{y:.3s}",
        text=duration_text,
    )
