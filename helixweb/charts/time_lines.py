"""Lines over wall-clock time, as the monitor draws them; gaps (None) stay gaps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from helixweb.charts.chart import UNKNOWN, Chart, figure_json, tokens_per_s, trace
from helixweb.words import gettext as _

# Of many moments nobody reads more in a table.
LISTED = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line: a value per moment, None where nothing was measured; dashed lines are secondary."""

    name: str
    values: Sequence[float | None]
    colour: str
    dash: str = "solid"


def time_lines(
    times: Sequence[datetime],
    lines: Sequence[Line],
    *,
    unit: str,
    axis: Mapping[str, Any] | None = None,
    hover: str = "%{y:,.4g} ",
    text: Callable[[float], str] | None = None,
) -> Chart:
    """Traces in the order of `lines`; monitor.js appends to them. `axis` replaces the title of
    the vertical axis, which is `unit`; `hover` comes before the unit under the pointer; `text`
    writes a value with its unit in the summary.

    The table has the newest `LISTED` moments, the newest first, in the zone that they come in; the
    axis is in that of the reader.
    """
    moments = _isoformats(tuple(times))
    traces = [
        trace(
            "scatter",
            name=line.name,
            mode="lines",
            x=list(moments),
            y=list(line.values),
            line={"color": line.colour, "width": 2, "dash": line.dash},
            connectgaps=False,
            hovertemplate="%{x|%H:%M:%S}: " + hover + unit + f"<extra>{line.name}</extra>",
        )
        for line in lines
    ]
    layout = {
        "uirevision": "time",
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
        "margin": {"l": 8, "r": 16, "t": 34, "b": 36},
        "xaxis": {"type": "date", "tickangle": 0},  # tilted ones are cut off below
        "yaxis": {"rangemode": "tozero", **(axis or {"title": {"text": unit}})},
    }
    return Chart(
        figure=figure_json(traces, layout),
        summary=_summary(lines, text or (lambda value: f"{tokens_per_s(value)} {unit}")),
        columns=(_("Time"), *(f"{line.name} ({unit})" for line in lines)),
        rows=tuple(
            (
                f"{times[index]:%Y-%m-%d %H:%M:%S}",
                *(_cell(line.values[index]) for line in lines),
            )
            for index in reversed(range(max(0, len(times) - LISTED), len(times)))
        ),
    )


def small(chart: Chart) -> Chart:
    """The same lines without legend and axis title, for a chart of a few dozen pixels. The
    caller shows what the lines are."""
    layout = chart.figure["layout"]
    axis = {name: value for name, value in layout["yaxis"].items() if name != "title"}
    return replace(
        chart,
        figure={
            **chart.figure,
            "layout": {
                **layout,
                "showlegend": False,
                "margin": {"l": 8, "r": 8, "t": 4, "b": 22},
                "xaxis": {**layout["xaxis"], "nticks": 4},
                "yaxis": {**axis, "nticks": 3},
            },
        },
    )


@lru_cache(maxsize=2)
def _isoformats(times: tuple[datetime, ...]) -> tuple[str, ...]:
    """A page has several charts over the same moments."""
    return tuple(moment.isoformat() for moment in times)


def _cell(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.4g}"


def _summary(lines: Sequence[Line], text: Callable[[float], str]) -> str:
    latest = [
        f"{line.name} {text(line.values[-1])}"
        for line in lines
        if line.values and line.values[-1] is not None
    ]
    if latest:
        return _("Now: %(names)s.") % {"names": ", ".join(latest)}
    if any(value is not None for line in lines for value in line.values):
        return _("Nothing is measured now.")
    return _("Nothing has been measured yet.")
