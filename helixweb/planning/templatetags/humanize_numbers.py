"""Numbers as the pages write them; None becomes a dash."""

from django import template

from helixweb.charts.chart import UNKNOWN
from helixweb.charts.chart import tokens_per_s as format_tokens_per_s

register = template.Library()


@register.filter
def tokens_per_s(value: float | None) -> str:
    """952 or 12.3."""
    return UNKNOWN if value is None else format_tokens_per_s(value)


@register.filter
def percent(value: float | None) -> str:
    """A ratio as 12.3 %."""
    return UNKNOWN if value is None else f"{value * 100:.1f} %"


@register.filter
def gain(value: float) -> str:
    """A ratio as +12.3 %."""
    return f"{value * 100:+.1f} %"
