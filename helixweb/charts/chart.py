"""The result of every chart function: a figure, and a text alternative with the same facts; bytes,
bit rates and durations as people read them. Decimal prefixes: 1 GB is 1e9 bytes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from helixweb.words import gettext as _
from helixweb.words import gettext_noop
from planner.units import BITS_PER_BYTE, prefixed, three_digits
from planner.units import bytes_text as bytes_text

# Okabe-Ito, readable with any colour vision; black is left out because it vanishes on dark pages.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
ROW_HEIGHT_PX = 22
LONGEST_LABEL = 18
# More bars are unreadable, and slow to draw.
MOST_BARS = 50
# A few more rows where a row is not one node, or changes over time.
MOST_ROWS = 100
# An axis of at most so many whole numbers marks each of them.
MOST_SINGLE_TICKS = 12
# Text of a table cell without a measurement.
UNKNOWN = "—"
# A horizontal axis of shares.
SHARES = {"range": [0, 1.02], "tickformat": ".0%"}

Cell = str | int | float
Trace = dict[str, Any]


# What a summary adds where not all rows are in the chart.
DRAWN = {
    "busiest": gettext_noop(" Drawn are the %(most)s busiest of %(rows)s."),
    "farthest": gettext_noop(" Drawn are the %(most)s farthest of %(rows)s."),
    "highest": gettext_noop(" Drawn are the %(most)s highest of %(rows)s."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Legend:
    """A colour and its meaning, for figures without a legend of their own."""

    colour: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """`figure` is {"data", "layout"}; `summary` one sentence; `columns` and `rows` its table."""

    figure: dict[str, Any]
    summary: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    legend: tuple[Legend, ...] = ()

    @property
    def document(self) -> dict[str, Any]:
        """The chart for the REST API."""
        facts = {"summary": self.summary, "columns": self.columns, "rows": self.rows}
        return {**self.figure, **facts}


def trace(kind: str, **attributes: Any) -> Trace:
    """A Plotly trace of that type as its JSON has it; numbers that JSON lacks are gaps in x and y.

    Plotly's own classes would check it, which takes longer than all else of a page: tests have it
    checked.
    """
    for axis in ("x", "y"):
        values = attributes.get(axis, ())
        odd = [isinstance(value, float) and not math.isfinite(value) for value in values]
        if any(odd):
            attributes[axis] = [
                None if is_odd else value for value, is_odd in zip(values, odd, strict=True)
            ]
    return {"type": kind, **attributes}


def figure_json(traces: Sequence[Trace], layout: dict[str, Any]) -> dict[str, Any]:
    """Plain JSON values of a Plotly figure, without Plotly's own theme."""
    return {"data": list(traces), "layout": {**layout, "template": {}}}


def axes_layout(x: str | None, *, has_legend: bool = False, **layout: Any) -> dict[str, Any]:
    """Common layout of figures with axes: `x` names the horizontal one, a legend is above.

    Of what `layout` says of `xaxis` nothing is lost.
    """
    title = {} if x is None else {"title": {"text": x}}
    return {
        "showlegend": has_legend,
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
        "margin": {"l": 8, "r": 16, "t": 34 if has_legend else 8, "b": 44},
        **layout,
        "xaxis": {**title, **layout.get("xaxis", {})},
    }


def rows_figure(
    traces: Sequence[Trace],
    names: Sequence[str],
    *,
    x: str,
    labels: Sequence[str] | None = None,
    **layout: Any,
) -> dict[str, Any]:
    """Horizontal bars in a row for each of `names`, the first on top; `layout` as `axes_layout`."""
    rows = {"height": height_for_rows(len(names)), "bargap": 0.25}
    return figure_json(traces, axes_layout(x, **{**rows, **layout}, yaxis=row_axis(names, labels)))


def row_bars(
    names: Sequence[str], values: Sequence[float | None], hovers: Sequence[Any], **more: Any
) -> Trace:
    """A bar in each of these rows of a `rows_figure`; pointing at it shows its one of `hovers`."""
    usual = {
        "textposition": "auto",
        "cliponaxis": False,
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    bars = {"orientation": "h", "y": list(names), "x": list(values), "customdata": list(hovers)}
    return trace("bar", **{**usual, **bars, **more})


def plain(text: str) -> str:
    """`text` as it is where Plotly would read <b>, <a href>, <extra> or %{y} in it."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("%{", "%&#123;")


def shortened(name: str) -> str:
    """A name as an axis can show it; hovering shows it whole."""
    return plain(name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…")


def row_axis(names: Sequence[str], labels: Sequence[str] | None = None) -> dict[str, Any]:
    """A y axis with a row for each name, the first on top; `labels` are shown in their place.

    Values on it are whole names, also such as "1" or "2024-01-01", which Plotly would take for
    numbers and dates.
    """
    return {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": list(reversed(names)),
        "tickmode": "array",
        "tickvals": list(names),
        "ticktext": list(labels or map(shortened, names)),
        "showgrid": False,
    }


def whole_ticks(last: int) -> dict[str, Any]:
    """Ticks of an axis of whole numbers up to `last`: Plotly marks halves if there are few."""
    return {"dtick": 1} if last <= MOST_SINGLE_TICKS else {}


def colours_by_name(names: list[str]) -> dict[str, str]:
    """A colour for each distinct name, the same in any order that they come in."""
    distinct = sorted(set(names))
    return {name: PALETTE[index % len(PALETTE)] for index, name in enumerate(distinct)}


def those_drawn(which: str, rows: int) -> str:
    """A text of which rows are drawn, from DRAWN; empty if all `rows` are in the chart."""
    return _(DRAWN[which]) % {"most": MOST_BARS, "rows": f"{rows:,}"} if rows > MOST_BARS else ""


def height_for_rows(rows: int, *, minimum_px: int = 170) -> int:
    """Height of a chart with one bar per row, axis and legend included."""
    return max(minimum_px, 90 + ROW_HEIGHT_PX * rows)


def tokens_per_s(value: float) -> str:
    """Tokens/s as text with few digits, such as 952 or 12.3."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def rate_text(tokens_per_second: float | None) -> str:
    """The same of a rate that may be unknown."""
    return UNKNOWN if tokens_per_second is None else tokens_per_s(tokens_per_second)


def number_text(value: float | None) -> str:
    """A quantity of any size as text."""
    return UNKNOWN if value is None else f"{value:,.4g}"


def of_capacity(flow: Any) -> str:
    """The used share of the capacity of a NodeFlow or EdgeFlow, as text."""
    return _("%(flow)s of %(capacity)s tokens/s") % {
        "flow": tokens_per_s(flow.flow_tokens_per_s),
        "capacity": tokens_per_s(flow.capacity_tokens_per_s),
    }


def percent(share: float | None, *, decimals: int = 1) -> str:
    """0.125 -> 12.5%."""
    return UNKNOWN if share is None else f"{share:.{decimals}%}"


def bit_rate_text(bytes_per_s: float) -> str:
    """1.25e9 bytes/s -> 10 Gbit/s."""
    return prefixed(bytes_per_s * BITS_PER_BYTE, "bit/s")


def duration_text(seconds: float) -> str:
    """0.055 -> 55 ms."""
    if seconds == 0:
        return "0 ms"
    if seconds < 1e-3:
        return f"{three_digits(seconds * 1e6)} µs"
    if seconds < 1:
        return f"{three_digits(seconds * 1e3)} ms"
    return f"{three_digits(seconds)} s"


def age_text(seconds: float) -> str:
    """An age in one rounded unit: 12 s, 5 min, 3 h, 2 d."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
