"""Latencies as the pages write them; None becomes a dash."""

from django import template

from helixweb.charts.chart import UNKNOWN
from helixweb.charts.quantities import duration_text

register = template.Library()


@register.filter
def latency(seconds: float | None) -> str:
    """0.055 -> 55 ms."""
    return UNKNOWN if seconds is None else duration_text(seconds)


@register.filter
def p95_note(seconds: float | None) -> str:
    """The note under a tile that shows the median."""
    return f"p50; p95 {latency(seconds)}"
