"""The monitor's table of nodes: {% load monitor_rows %}."""

from collections.abc import Iterable

from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from helixweb.charts.chart import UNKNOWN
from helixweb.monitoring.presentation import MonitoredNode
from helixweb.planning.templatetags.humanize_numbers import percent, tokens_per_s

register = template.Library()


@register.filter
def monitor_rows(nodes: Iterable[MonitoredNode]) -> SafeString:
    """A <tr> for each, written in one go; monitor.js replaces what is in [data-cell]."""
    pages = _("%(kv_used_pages)s of %(kv_total_pages)s")
    return mark_safe(  # noqa: S308 - of numbers, and names that are escaped
        "".join(_row(node, pages) for node in nodes)
    )


def _row(node: MonitoredNode, pages: str) -> str:
    name, kv = escape(node.name), UNKNOWN
    if node.kv_total_pages is not None:
        kv = escape(
            pages % {"kv_used_pages": node.kv_used_pages, "kv_total_pages": node.kv_total_pages}
        )
    sequences = UNKNOWN if node.sequences is None else node.sequences
    return (
        f'<tr data-node="{name}"><td>{name}</td><td class="mono">{node.layers}</td>'
        f'<td class="num" data-cell="busy">{percent(node.busy_ratio)}</td>'
        f'<td class="num" data-cell="tokens">{tokens_per_s(node.tokens_per_s)}</td>'
        f'<td class="num">{tokens_per_s(node.planned_tokens_per_s)}</td>'
        f'<td class="num" data-cell="flow">{percent(node.flow_share)}</td>'
        f'<td class="num">{percent(node.planned_share)}</td>'
        f'<td class="num" data-cell="sequences">{sequences}</td>'
        f'<td class="num" data-cell="kv">{kv}</td></tr>'
    )
