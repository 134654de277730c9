"""Heat map of latencies over time, by interval: bands would hide bimodal distributions."""

from collections.abc import Sequence
from datetime import datetime

from helixweb.charts.chart import Chart, figure_json, percent, trace
from helixweb.charts.quantities import duration_text
from helixweb.words import gettext as _


def latency_heat(
    times: Sequence[datetime],
    counts: Sequence[Sequence[int] | None],
    *,
    bounds_s: Sequence[float],
) -> Chart:
    """Each step has its start and the counts up to every bound and above the last; None: unknown.

    A column's colour is each interval's share of it, so that quiet hours can be read as well.
    """
    labels = [f"≤ {duration_text(bound)}" for bound in bounds_s]
    labels.append(f"> {duration_text(bounds_s[-1])}")
    known = [column for column in counts if column is not None]
    used = [index for index in range(len(labels)) if any(column[index] for column in known)]
    rows = range(min(used), max(used) + 1) if used else range(0)
    shown = [labels[row] for row in rows]
    heatmap = trace(
        "heatmap",
        x=[time.isoformat() for time in times],
        y=shown,
        z=[[column[row] / sum(column) if column and sum(column) else None for column in counts]
           for row in rows],
        customdata=[[column[row] if column else 0 for column in counts] for row in rows],
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
    )  # fmt: skip
    layout = {
        "uirevision": "heat",
        "margin": {"l": 8, "r": 8, "t": 12, "b": 36},
        # Without a time the axis would begin in the year 2000. Few horizontal labels: tilted ones
        # are cut off on a phone.
        "xaxis": {"type": "date", "visible": bool(shown), "tickangle": 0, "nticks": 5},
        "yaxis": {"type": "category", "categoryorder": "array", "categoryarray": shown},
    }
    totals = {labels[row]: sum(column[row] for column in known) for row in rows}
    return Chart(
        figure=figure_json([heatmap], layout),
        summary=_summary(totals),
        columns=(_("Latency"), _("Count"), _("Share")),
        rows=tuple(
            (label, total, percent(total / sum(totals.values()))) for label, total in totals.items()
        ),
    )


def _summary(totals: dict[str, int]) -> str:
    whole = sum(totals.values())
    if not whole:
        return _("Nothing was measured in this time.")
    most = max(totals, key=lambda label: totals[label])
    return _("%(count)s measured; most, %(share)s, took %(interval)s.") % {
        "count": f"{whole:,}",
        "share": f"{totals[most] / whole:.0%}",
        "interval": most,
    }
