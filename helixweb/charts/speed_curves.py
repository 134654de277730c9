"""Tokens/s against the number of layers held, a line per profile."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from helixweb.charts.chart import (
    PALETTE,
    Chart,
    Legend,
    axes_layout,
    figure_json,
    plain,
    rate_text,
    tokens_per_s,
    trace,
    whole_ticks,
)
from helixweb.words import gettext as _

_SYMBOLS = ("", "■", "◆", "✚", "✖")  # Plotly's first ones; circles need none


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedCurve:
    """The entry at index j - 1 is with j layers held; what was not measured is dashed."""

    name: str
    tokens_per_s: tuple[float, ...]
    is_measured: bool


def speed_curves(curves: Sequence[SpeedCurve]) -> Chart:
    """Speed by layers on a logarithmic scale: it falls about as one over the layers."""
    styles = [
        (PALETTE[number % len(PALETTE)], number // len(PALETTE) % len(_SYMBOLS))
        for number in range(len(curves))
    ]
    traces = [
        trace(
            "scatter",
            name=plain(curve.name),
            mode="lines+markers",
            x=list(range(1, len(curve.tokens_per_s) + 1)),
            y=list(curve.tokens_per_s),
            line={"color": colour, "width": 2, "dash": "solid" if curve.is_measured else "dot"},
            marker={"size": 5, "symbol": symbol},
            hovertemplate=f"%{{x}}: %{{y:,.0f}} tokens/s<extra>{plain(curve.name)}</extra>",
        )
        for curve, (colour, symbol) in zip(curves, styles, strict=True)
    ]
    longest = max((len(curve.tokens_per_s) for curve in curves), default=0)
    layout = axes_layout(
        _("layers held"),
        height=320,
        uirevision="speed",
        xaxis={"rangemode": "tozero", **whole_ticks(longest)},
        yaxis={
            "title": {"text": _("tokens/s")},
            "type": "log",
            "dtick": "D2",
            "tickformat": ",.0f",
        },
    )
    return Chart(
        figure=figure_json(traces, layout),
        summary=_summary(curves),
        columns=(_("Layers held"), *(curve.name for curve in curves)),
        rows=tuple(
            (layers, *map(rate_text, speeds))
            for layers, speeds in enumerate(
                zip_longest(*(curve.tokens_per_s for curve in curves)), start=1
            )
        ),
        # In HTML, which finds room on a phone; where colours come again, with the points' symbol.
        legend=tuple(
            Legend(colour=colour, label=f"{curve.name} {_SYMBOLS[symbol]}".rstrip())
            for curve, (colour, symbol) in zip(curves, styles, strict=True)
            if len(curves) > 1
        ),
    )


def _summary(curves: Sequence[SpeedCurve]) -> str:
    known = [curve for curve in curves if curve.tokens_per_s]
    if not known:
        return _("No profile says how fast a node is.")
    fastest = max(known, key=lambda curve: curve.tokens_per_s[0])
    measured = sum(curve.is_measured for curve in known)
    speed = tokens_per_s(fastest.tokens_per_s[0])
    return _(
        "Fastest with one layer: %(name)s, %(speed)s tokens/s; %(measured)s of "
        "%(count)s measured here (solid), the others dotted."
    ) % {"name": fastest.name, "speed": speed, "measured": measured, "count": len(known)}
