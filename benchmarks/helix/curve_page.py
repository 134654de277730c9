"""Writes search progress as a CSV file and as a page with one chart for each problem."""

from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go
from plotly.io import to_html

from benchmarks.helix.progress_curve import ProgressCurve, curves_to_csv

CSV_NAME, PAGE_NAME = "search_progress.csv", "search_progress.html"
# Zero cannot be drawn on a logarithmic axis; searches show what they knew this soon from here on.
_FIRST_S = 0.01


def write_curves(folder: Path, curves: Sequence[ProgressCurve]) -> None:
    """Raises OSError where the folder cannot be made or written."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CSV_NAME).write_text(curves_to_csv(curves), encoding="utf-8")
    (folder / PAGE_NAME).write_text(page_of(curves), encoding="utf-8")


def page_of(curves: Sequence[ProgressCurve]) -> str:
    """A page that needs no network; incumbents are drawn through, bounds dashed."""
    problems = list(dict.fromkeys(curve.problem for curve in curves))
    charts = [
        to_html(
            _chart(problem, [curve for curve in curves if curve.problem == problem]),
            include_plotlyjs=index == 0,
            full_html=False,
        )
        for index, problem in enumerate(problems)
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>Search progress</title></head><body>{''.join(charts)}</body></html>\n"
    )


def _chart(problem: str, curves: Sequence[ProgressCurve]) -> go.Figure:
    figure = go.Figure()
    for curve in curves:
        times = [max(point.time_s, _FIRST_S) for point in curve.points]
        label = f"{curve.source}: {curve.name}"
        for kind, dash, values in (
            ("incumbent", "solid", [point.incumbent_tokens_per_s for point in curve.points]),
            ("bound", "dash", [point.bound_tokens_per_s for point in curve.points]),
        ):
            figure.add_scatter(
                x=times,
                y=values,
                name=f"{label}, {kind}",
                mode="lines",
                line={"dash": dash, "shape": "hv"},
            )
    figure.update_layout(
        title=problem,
        xaxis={"title": "seconds", "type": "log"},
        yaxis={"title": "tokens/s", "type": "log"},
    )
    return figure
