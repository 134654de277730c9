"""Memory by component, one stacked bar per node or profile."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helixweb.charts.chart import (
    PALETTE,
    Chart,
    Legend,
    figure_json,
    height_for_rows,
    node_axis,
    plain,
    trace,
)
from helixweb.charts.quantities import bytes_text
from helixweb.words import gettext as _
from helixweb.words import gettext_noop

UNITS = (("GB", 1e9), ("MB", 1e6))  # of the axis: that of the longest bar
# Okabe-Ito for what holds something; what is free or not to be had is grey, so it reads as room.
_COLOURS = {
    gettext_noop("weights"): PALETTE[0],
    gettext_noop("KV cache in use"): PALETTE[1],
    gettext_noop("KV cache kept for prompts"): PALETTE[6],
    gettext_noop("KV cache room"): PALETTE[1],
    gettext_noop("KV cache free"): "var(--flow)",
    gettext_noop("left for computing"): PALETTE[4],
    gettext_noop("not for the stage"): "var(--line)",
    gettext_noop("left"): "var(--line)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBar:
    """One bar: bytes by component, drawn in this order; components of 0 bytes are left out."""

    name: str
    parts: Mapping[str, float]


def memory_bars(bars: Sequence[MemoryBar]) -> Chart:
    """Bars in the order given, the first on top."""
    longest = max((sum(bar.parts.values()) for bar in bars), default=0.0)
    unit, unit_bytes = next(one for one in UNITS if longest >= one[1] or one is UNITS[-1])
    components = list(dict.fromkeys(part for bar in bars for part in bar.parts))
    shown = [part for part in components if any(bar.parts.get(part, 0.0) > 0 for bar in bars)]
    traces = [
        trace(
            "bar",
            name=_(part),
            orientation="h",
            y=[bar.name for bar in bars],
            x=[bar.parts.get(part, 0.0) / unit_bytes for bar in bars],
            marker={
                "color": _colour(part),
                "line": {"width": 1, "color": "var(--surface)"},
            },
            customdata=[
                f"{plain(bar.name)}: {_(part)} {bytes_text(bar.parts.get(part, 0.0))}"
                for bar in bars
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )
        for part in shown
    ]
    layout = {
        "height": height_for_rows(len(bars), minimum_px=170),
        "barmode": "stack",
        "bargap": 0.3,
        "uirevision": "memory",
        "showlegend": False,  # in HTML, which finds room on a phone
        "margin": {"l": 8, "r": 16, "t": 8, "b": 44},
        "xaxis": {"title": {"text": unit}, "rangemode": "tozero"},
        "yaxis": node_axis([bar.name for bar in bars]),
    }
    return Chart(
        figure=figure_json(traces, layout),
        summary=_summary(bars),
        columns=("", *(_(part)[0].upper() + _(part)[1:] for part in shown), _("Together")),
        rows=tuple(
            (
                bar.name,
                *(bytes_text(bar.parts.get(part, 0.0)) for part in shown),
                bytes_text(sum(bar.parts.values())),
            )
            for bar in bars
        ),
        legend=tuple(Legend(colour=_colour(part), label=_(part)) for part in shown),
    )


def _colour(part: str) -> str:
    return _COLOURS.get(part, PALETTE[7])


def _summary(bars: Sequence[MemoryBar]) -> str:
    if not bars:
        return _("Nothing is known of any memory yet.")
    if len(bars) > 1:
        return _("Memory of %(count)s, by component.") % {"count": len(bars)}
    (bar,) = bars
    parts = [f"{_(part)} {bytes_text(size)}" for part, size in bar.parts.items() if size > 0]
    return _("Of %(whole)s: %(parts)s.") % {
        "whole": bytes_text(sum(bar.parts.values())),
        "parts": ", ".join(parts),
    }
