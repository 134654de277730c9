"""Template filters: {% load quantities %}{{ value|bytes }} {{ value|bit_rate }} …"""

from django import template
from django.utils.translation import gettext as _

from helixweb.charts.chart import UNKNOWN, age_text, bit_rate_text, bytes_text, duration_text
from helixweb.inventory.network import RegionPair

register = template.Library()
register.filter("bytes", bytes_text)
register.filter("bit_rate", bit_rate_text)
register.filter("age", age_text)


@register.filter
def duration(seconds: float | None) -> str:
    """0.055 -> 55 ms; None becomes a dash."""
    return UNKNOWN if seconds is None else duration_text(seconds)


@register.filter
def rate_range(pair: RegionPair) -> str:
    """The bit rates of the links from one region to another."""
    return _range(bit_rate_text(pair.slowest_bytes_per_s), bit_rate_text(pair.fastest_bytes_per_s))


@register.filter
def latency_range(pair: RegionPair) -> str:
    """The latencies of the links from one region to another."""
    return _range(duration_text(pair.shortest_s), duration_text(pair.longest_s))


def _range(least: str, most: str) -> str:
    return least if least == most else _("%(least)s to %(most)s") % {"least": least, "most": most}
