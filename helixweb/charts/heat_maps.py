"""Heat maps: bandwidth or latency of every directed pair, the links of the plan outlined; and
latencies over time, by interval: bands would hide bimodal distributions."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Literal

from helixweb.charts.chart import (
    UNKNOWN,
    Chart,
    Legend,
    Trace,
    bit_rate_text,
    duration_text,
    figure_json,
    height_for_rows,
    percent,
    plain,
    shortened,
    trace,
)
from helixweb.words import gettext as _
from helixweb.words import gettext_noop

Measure = Literal["bandwidth", "latency"]
OUTLINE = "#D55E00"
IN_USE = gettext_noop("outlined: carries the plan's flow")
# Below this a latency counts as this on the logarithmic scale: 0 has no logarithm.
LEAST_LATENCY_S = 1e-6


_TEXT_OF: dict[Measure, Callable[[float], str]] = {
    "bandwidth": bit_rate_text,
    "latency": duration_text,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCell:
    """One directed pair. `note` says where the numbers come from and how old they are."""

    bandwidth_bytes_per_s: float
    latency_s: float
    note: str = ""
    in_use: bool = False

    def value(self, measure: Measure) -> float:
        if measure == "bandwidth":
            return self.bandwidth_bytes_per_s
        return max(self.latency_s, LEAST_LATENCY_S)

    @property
    def text(self) -> str:
        rate, latency = bit_rate_text(self.bandwidth_bytes_per_s), duration_text(self.latency_s)
        lines = [f"{rate}, {latency}"]
        lines += [plain(self.note)] if self.note else []
        lines += [_("carries the plan's flow")] if self.in_use else []
        return "<br>".join(lines)


Cells = Mapping[tuple[str, str], MatrixCell]


def network_matrix(
    names: Sequence[str],
    cells: Cells,
    *,
    measure: Measure = "bandwidth",
    possible: int | None = None,
) -> Chart:
    """Rows send, columns receive; `cells` has the reachable pairs.

    `possible` is the number of possible pairs, for the text; None if the names are regions.
    """
    out: dict[str, list[MatrixCell]] = {name: [] for name in names}
    for (source, _target), cell in cells.items():
        out[source].append(cell)
    in_use = any(cell.in_use for cell in cells.values())
    return Chart(
        figure=figure_json([_heatmap(names, cells, measure)], _layout(names, cells)),
        summary=_network_summary(cells, measure, possible),
        columns=(
            _("From"), _("Links out"), _("Slowest"), _("Median"), _("Fastest"),
            _("Largest latency"),
        ),
        rows=tuple(_row(name, out[name]) for name in names),
        legend=(Legend(colour=OUTLINE, label=_(IN_USE)),) if in_use else (),
    )  # fmt: skip


def _heatmap(names: Sequence[str], cells: Cells, measure: Measure) -> Trace:
    logs = {pair: math.log10(cell.value(measure)) for pair, cell in cells.items()}
    low, high = min(logs.values(), default=0.0), max(logs.values(), default=1.0)
    ticks = sorted({low, (low + high) / 2, high})
    # What many pairs have in common is worded once.
    shown = {name: plain(name) for name in names}
    said = {one: one.text for one in set(cells.values())}
    no_link = _("%(ends)s: no link")

    def hover(source: str, target: str) -> str:
        ends = f"{shown[source]} → {shown[target]}"
        cell = cells.get((source, target))
        return no_link % {"ends": ends} if cell is None else f"{ends}: {said[cell]}"

    return trace(
        "heatmap",
        x=list(names),
        y=list(names),
        z=[[logs.get((source, target)) for target in names] for source in names],
        text=[[hover(source, target) for target in names] for source in names],
        hovertemplate="%{text}<extra></extra>",
        hoverongaps=False,
        colorscale="Cividis",
        # Slow links are dark: low bandwidth, or high latency.
        reversescale=measure == "latency",
        zmin=low if low < high else low - 1,
        zmax=high,
        xgap=1,
        ygap=1,
        colorbar={
            "title": {"text": _(measure), "side": "right"},
            "tickvals": ticks,
            "ticktext": [_TEXT_OF[measure](10**tick) for tick in ticks],
            "thickness": 12,
        },
    )


def _layout(names: Sequence[str], cells: Cells) -> dict[str, object]:
    def axis(title: str) -> dict[str, object]:
        return {
            "type": "category",
            "tickmode": "array",
            "tickvals": list(names),
            "ticktext": list(map(shortened, names)),
            "showgrid": False,
            "zeroline": False,
            "title": {"text": title, "standoff": 8},
            "automargin": True,
        }

    def sides(name: str, letter: str) -> dict[str, float]:
        number = names.index(name)
        return {f"{letter}0": number - 0.46, f"{letter}1": number + 0.46}

    line = {"color": OUTLINE, "width": 2.5}
    return {
        "height": height_for_rows(len(names), minimum_px=260),
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "xaxis": axis(_("to")),
        "yaxis": axis(_("from")) | {"autorange": "reversed"},
        "shapes": [
            {"type": "rect", "line": line, **sides(target, "x"), **sides(source, "y")}
            for (source, target), cell in cells.items()
            if cell.in_use
        ],
    }


def _network_summary(cells: Cells, measure: Measure, possible: int | None) -> str:
    if not cells:
        return _("No two nodes are connected yet.")
    values = [cell.value(measure) for cell in cells.values()]
    low, high = (_TEXT_OF[measure](value) for value in (min(values), max(values)))
    text = _("%(measure)s %(low)s to %(high)s") % {
        "measure": _(measure),
        "low": low,
        "high": high,
    }
    if min(values) == max(values):
        text = _("all at %(low)s") % {"low": low}
    if possible is not None:
        summary = _("%(count)s of %(possible)s directed pairs connected, ")
        text = summary % {"count": len(cells), "possible": possible} + text
    if used := sum(cell.in_use for cell in cells.values()):
        text += _("; %(used)s carry the plan's flow") % {"used": used}
    return text[0].upper() + text[1:] + _(".")


def _row(name: str, out: Sequence[MatrixCell]) -> tuple[str | int, ...]:
    if not out:
        return (name, 0, *[UNKNOWN] * 4)
    rates = [cell.bandwidth_bytes_per_s for cell in out]
    return (
        name,
        len(out),
        *(bit_rate_text(rate) for rate in (min(rates), median(rates), max(rates))),
        duration_text(max(cell.latency_s for cell in out)),
    )


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
        summary=_latency_summary(totals),
        columns=(_("Latency"), _("Count"), _("Share")),
        rows=tuple(
            (label, total, percent(total / sum(totals.values()))) for label, total in totals.items()
        ),
    )


def _latency_summary(totals: dict[str, int]) -> str:
    whole = sum(totals.values())
    if not whole:
        return _("Nothing was measured in this time.")
    most = max(totals, key=lambda label: totals[label])
    return _("%(count)s measured; most, %(share)s, took %(interval)s.") % {
        "count": f"{whole:,}",
        "share": f"{totals[most] / whole:.0%}",
        "interval": most,
    }
