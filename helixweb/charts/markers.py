"""Moments that a chart over time names: deployments, for one."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from helixweb.charts.chart import Chart, plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A moment and what to call it, in a word."""

    at: datetime
    label: str


def marked(chart: Chart, markers: Sequence[Marker]) -> Chart:
    """The chart with a dotted line from top to bottom at each moment, its label on top."""
    shapes: list[dict[str, Any]] = [
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
    annotations: list[dict[str, Any]] = [
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
    layout = {**chart.figure["layout"], "shapes": shapes, "annotations": annotations}
    return dataclasses.replace(chart, figure={**chart.figure, "layout": layout})
