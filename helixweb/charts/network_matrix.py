"""Bandwidth or latency of every directed pair as a heat map; the links of the plan are outlined."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from helixweb.charts.chart import (
    Chart,
    Legend,
    Trace,
    figure_json,
    height_for_rows,
    plain,
    shortened,
    trace,
)
from helixweb.charts.quantities import bit_rate_text, duration_text
from helixweb.words import gettext as _
from helixweb.words import gettext_noop

Measure = Literal["bandwidth", "latency"]
OUTLINE = "#D55E00"
IN_USE = gettext_noop("outlined: carries the plan's flow")
# Below this a latency counts as this on the logarithmic scale: 0 has no logarithm.
LEAST_LATENCY_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCell:
    """One directed pair. `note` says where the numbers come from and how old they are."""

    bandwidth_bytes_per_s: float
    latency_s: float
    note: str = ""
    in_use: bool = False


def network_matrix(
    names: Sequence[str],
    cells: Mapping[tuple[str, str], MatrixCell],
    *,
    measure: Measure = "bandwidth",
    possible: int | None = None,
) -> Chart:
    """Rows send, columns receive; `cells` has the reachable pairs.

    `possible` is how many pairs there could be: where names are regions, None, and not told.
    """
    values = [_value(cell, measure) for cell in cells.values()]
    out: dict[str, list[MatrixCell]] = {name: [] for name in names}
    for (source, _target), cell in cells.items():
        out[source].append(cell)
    figure = figure_json([_heatmap(names, cells, values, measure)], _layout(names, cells))
    summary = _("No two nodes are connected yet.")
    if values:
        count = (
            ""
            if possible is None
            else _("%(count)s of %(possible)s directed pairs connected, ")
            % {"count": len(cells), "possible": possible}
        )
        summary = f"{count}{_range(min(values), max(values), measure)}{_used(cells)}" + _(".")
        summary = summary[0].upper() + summary[1:]
    in_use = any(cell.in_use for cell in cells.values())
    return Chart(
        figure=figure,
        summary=summary,
        columns=(
            _("From"), _("Links out"), _("Slowest"), _("Median"), _("Fastest"),
            _("Largest latency"),
        ),
        rows=tuple(_row(name, out[name]) for name in names),
        legend=(Legend(colour=OUTLINE, label=_(IN_USE)),) if in_use else (),
    )  # fmt: skip


def _value(cell: MatrixCell, measure: Measure) -> float:
    if measure == "bandwidth":
        return cell.bandwidth_bytes_per_s
    return max(cell.latency_s, LEAST_LATENCY_S)


def _text(value: float, measure: Measure) -> str:
    return bit_rate_text(value) if measure == "bandwidth" else duration_text(value)


def _heatmap(
    names: Sequence[str],
    cells: Mapping[tuple[str, str], MatrixCell],
    values: Sequence[float],
    measure: Measure,
) -> Trace:
    low, high = (math.log10(min(values)), math.log10(max(values))) if values else (0.0, 1.0)
    ticks = sorted({low, (low + high) / 2, high})
    return trace(
        "heatmap",
        x=list(names),
        y=list(names),
        z=[
            [
                math.log10(_value(cells[source, target], measure))
                if (source, target) in cells
                else None
                for target in names
            ]
            for source in names
        ],
        text=_hovers(names, cells),
        hovertemplate="%{text}<extra></extra>",
        hoverongaps=False,
        colorscale="Cividis",
        # Slow stands out as dark: little bandwidth, or much latency.
        reversescale=measure == "latency",
        zmin=low if low < high else low - 1,
        zmax=high,
        xgap=1,
        ygap=1,
        colorbar={
            "title": {"text": _(measure), "side": "right"},
            "tickvals": ticks,
            "ticktext": [_text(10**tick, measure) for tick in ticks],
            "thickness": 12,
        },
    )


def _layout(names: Sequence[str], cells: Mapping[tuple[str, str], MatrixCell]) -> dict[str, object]:
    axis = {
        "type": "category",
        "tickmode": "array",
        "tickvals": list(names),
        "ticktext": [shortened(name) for name in names],
        "showgrid": False,
        "zeroline": False,
    }
    number_of = {name: number for number, name in enumerate(names)}
    return {
        "height": height_for_rows(len(names), minimum_px=260),
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "xaxis": {**axis, "title": {"text": _("to"), "standoff": 8}, "automargin": True},
        "yaxis": {
            **axis,
            "title": {"text": _("from"), "standoff": 8},
            "automargin": True,
            "autorange": "reversed",
        },
        "shapes": [
            {
                "type": "rect",
                "x0": number_of[target] - 0.46,
                "x1": number_of[target] + 0.46,
                "y0": number_of[source] - 0.46,
                "y1": number_of[source] + 0.46,
                "line": {"color": OUTLINE, "width": 2.5},
            }
            for (source, target), cell in cells.items()
            if cell.in_use
        ],
    }


def _range(low: float, high: float, measure: Measure) -> str:
    if low == high:
        return _("all at %(low)s") % {"low": _text(low, measure)}
    return _("%(measure)s %(low)s to %(high)s") % {
        "measure": _(measure),
        "low": _text(low, measure),
        "high": _text(high, measure),
    }


def _used(cells: Mapping[tuple[str, str], MatrixCell]) -> str:
    used = sum(cell.in_use for cell in cells.values())
    return _("; %(used)s carry the plan's flow") % {"used": used} if used else ""


def _hovers(names: Sequence[str], cells: Mapping[tuple[str, str], MatrixCell]) -> list[list[str]]:
    """What hovering says of every pair; what many pairs have in common is worded once."""
    shown = {name: plain(name) for name in names}
    said = {cell: _said(cell) for cell in set(cells.values())}
    no_link = _("%(ends)s: no link")

    def hover(source: str, target: str) -> str:
        ends = f"{shown[source]} → {shown[target]}"
        cell = cells.get((source, target))
        return no_link % {"ends": ends} if cell is None else f"{ends}: {said[cell]}"

    return [[hover(source, target) for target in names] for source in names]


def _said(cell: MatrixCell) -> str:
    rate, latency = bit_rate_text(cell.bandwidth_bytes_per_s), duration_text(cell.latency_s)
    lines = [f"{rate}, {latency}"]
    lines += [plain(cell.note)] if cell.note else []
    lines += [_("carries the plan's flow")] if cell.in_use else []
    return "<br>".join(lines)


def _row(name: str, out: Sequence[MatrixCell]) -> tuple[str | int, ...]:
    if not out:
        return (name, 0, "—", "—", "—", "—")
    rates = [cell.bandwidth_bytes_per_s for cell in out]
    return (
        name,
        len(out),
        bit_rate_text(min(rates)),
        bit_rate_text(median(rates)),
        bit_rate_text(max(rates)),
        duration_text(max(cell.latency_s for cell in out)),
    )
