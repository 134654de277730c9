"""How many latencies fell into which interval over time: a heat map, as bands hide two humps."""

from collections.abc import Sequence
from datetime import datetime

from helixweb.charts.chart import Chart, figure_json, trace
from helixweb.charts.quantities import duration_text
from helixweb.words import gettext as _


def latency_heat(
    times: Sequence[datetime],
    counts: Sequence[Sequence[int] | None],
    *,
    bounds_s: Sequence[float],
) -> Chart:
    """Of each step from a time on: counts up to every bound and above the last; None: unknown.

    A column's colour is each interval's share of it, so that quiet hours can be read as well.
    """
    labels = [f"≤ {duration_text(bound)}" for bound in bounds_s]
    labels.append(f"> {duration_text(bounds_s[-1])}")
    used = [
        index
        for index in range(len(labels))
        if any(column is not None and column[index] for column in counts)
    ]
    rows = range(min(used), max(used) + 1) if used else range(0)
    shares = [
        [
            None if column is None or not sum(column) else column[row] / sum(column)
            for column in counts
        ]
        for row in rows
    ]
    numbers = [[0 if column is None else column[row] for column in counts] for row in rows]
    shown = [labels[row] for row in rows]
    heatmap = trace(
        "heatmap",
        x=[time.isoformat() for time in times],
        y=shown,
        z=shares,
        customdata=numbers,
        zmin=0,
        zmax=1,
        colorscale="Cividis",
        showscale=True,
        colorbar={
            "title": {"text": _("share"), "side": "right"},
            "tickformat": ".0%",
            "thickness": 10,
        },
        hoverongaps=False,
        hovertemplate="%{x|%H:%M:%S}, %{y}: %{z:.1%} (%{customdata})<extra></extra>",
    )
    layout = {
        "uirevision": "heat",
        "margin": {"l": 8, "r": 8, "t": 12, "b": 36},
        # Without a moment the axis would begin in the year 2000. Few marks and level ones: what is
        # tilted to fit beside its neighbours on a phone is cut off below.
        "xaxis": {"type": "date", "visible": bool(shown), "tickangle": 0, "nticks": 5},
        "yaxis": {"type": "category", "categoryorder": "array", "categoryarray": shown},
    }
    totals = [sum(column[row] for column in counts if column is not None) for row in rows]
    return Chart(
        figure=figure_json([heatmap], layout),
        summary=_summary(shown, totals),
        columns=(_("Latency"), _("Count"), _("Share")),
        rows=tuple(
            (label, total, f"{total / max(1, sum(totals)):.1%}")
            for label, total in zip(shown, totals, strict=True)
        ),
    )


def _summary(labels: Sequence[str], totals: Sequence[int]) -> str:
    if not sum(totals):
        return _("Nothing was measured in this time.")
    most = max(range(len(totals)), key=lambda index: totals[index])
    return _("%(count)s measured; most, %(share)s, took %(interval)s.") % {
        "count": f"{sum(totals):,}",
        "share": f"{totals[most] / sum(totals):.0%}",
        "interval": labels[most],
    }
