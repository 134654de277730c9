"""Lines over wall-clock time, as the monitor draws them; gaps (None) stay gaps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from helixweb.charts.chart import (
    Chart,
    axes_layout,
    duration_text,
    figure_json,
    number_text,
    plain,
    tokens_per_s,
    trace,
)
from helixweb.words import gettext as _

# A table of more moments is not read.
LISTED = 60
# Of the first line, and of the second, which is dashed.
STYLES = ({"color": "var(--accent)"}, {"color": "var(--warn)", "dash": "dash"})

Lines = Mapping[str, Sequence[float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A moment and what to call it, in a word: a deployment, for one."""

    at: datetime
    label: str


def time_lines(
    times: Sequence[datetime],
    lines: Lines,
    *,
    unit: str,
    axis: Mapping[str, Any] | None = None,
    hover: str = "%{y:,.4g} ",
    text: Callable[[float], str] | None = None,
) -> Chart:
    """One or two `lines`, by name a value for each moment; monitor.js appends to them. `axis`
    replaces the title of the vertical axis, which is `unit`; `hover` comes before the unit under
    the pointer; `text` writes a value with its unit in the summary.

    The table has the newest `LISTED` moments, the newest first, in the zone that they come in; the
    axis is in that of the reader.
    """
    moments = [moment.isoformat() for moment in times]
    traces = [
        trace(
            "scatter",
            name=name,
            mode="lines",
            x=moments,
            y=list(values),
            line={"width": 2, **STYLES[index]},
            connectgaps=False,
            hovertemplate="%{x|%H:%M:%S}: " + hover + unit + f"<extra>{name}</extra>",
        )
        for index, (name, values) in enumerate(lines.items())
    ]
    layout = axes_layout(
        None,
        has_legend=True,
        xaxis={"type": "date", "tickangle": 0},  # tilted ones are cut off below
        yaxis={"rangemode": "tozero", **(axis or {"title": {"text": unit}})},
        uirevision="time",
    )
    return Chart(
        figure=figure_json(traces, layout),
        summary=_summary(lines, text or (lambda value: f"{tokens_per_s(value)} {unit}")),
        columns=(_("Time"), *(f"{name} ({unit})" for name in lines)),
        rows=tuple(
            (
                f"{times[index]:%Y-%m-%d %H:%M:%S}",
                *(number_text(values[index]) for values in lines.values()),
            )
            for index in reversed(range(max(0, len(times) - LISTED), len(times)))
        ),
    )


def latency(
    times: Sequence[datetime], *, p50_s: Sequence[float | None], p95_s: Sequence[float | None]
) -> Chart:
    """Median and 95th percentile in seconds. Ticks are "50ms" or "40s"; the summary writes values
    as the tiles do."""
    return time_lines(
        times,
        {"p50": p50_s, "p95": p95_s},
        unit="s",
        axis={"exponentformat": "SI", "minexponent": 0, "ticksuffix": "s"},
        hover="%{y:.3s}",
        text=duration_text,
    )


def between(
    chart: Chart, begin: datetime, end: datetime, *, markers: Sequence[Marker] = ()
) -> Chart:
    """The chart from `begin` to `end`, with a dotted line at each marker and its label on top."""
    shapes = [
        {
            "type": "line",
            "x0": marker.at.isoformat(),
            "x1": marker.at.isoformat(),
            "y0": 0,
            "y1": 1,
            "yref": "paper",
            "line": {"color": "var(--muted)", "width": 1, "dash": "dot"},
        }
        for marker in markers
    ]
    annotations = [
        {
            "x": marker.at.isoformat(),
            "y": 1,
            "yref": "paper",
            "yanchor": "top",
            "xanchor": "left",
            "showarrow": False,
            "text": plain(marker.label),
            "font": {"size": 10, "color": "var(--muted)"},
        }
        for marker in markers
    ]
    ends = [begin.isoformat(), end.isoformat()]
    return _with_layout(chart, xaxis={"range": ends}, shapes=shapes, annotations=annotations)


def small(chart: Chart) -> Chart:
    """The same lines of some minutes without legend, axis title and date, for a chart of a few
    dozen pixels. The caller shows what the lines are."""
    return _with_layout(
        chart,
        showlegend=False,
        margin={"l": 8, "r": 8, "t": 4, "b": 22},
        xaxis={"nticks": 4, "tickformat": "%H:%M"},
        yaxis={"nticks": 3, "title": {"text": ""}},
    )


def _with_layout(chart: Chart, **changes: Any) -> Chart:
    """Apply a layout; only the named properties of axes change."""
    layout = chart.figure["layout"]
    for axis in changes.keys() & {"xaxis", "yaxis"}:
        changes[axis] = {**layout[axis], **changes[axis]}
    return replace(chart, figure={**chart.figure, "layout": {**layout, **changes}})


def _summary(lines: Lines, text: Callable[[float], str]) -> str:
    newest = {name: values[-1] for name, values in lines.items() if values}
    latest = [f"{name} {text(value)}" for name, value in newest.items() if value is not None]
    if latest:
        return _("Now: %(names)s.") % {"names": ", ".join(latest)}
    if any(value is not None for values in lines.values() for value in values):
        return _("Nothing is measured now.")
    return _("Nothing has been measured yet.")
