"""Best flow and proven bound of a plan run against time (Helix Fig. 12)."""

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from helixweb.charts.chart import UNKNOWN, Chart, figure_json, tokens_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """What was known `elapsed_s` after the start; the bound is None while there is none."""

    elapsed_s: float
    flow_tokens_per_s: float
    upper_bound_tokens_per_s: float | None
    placer: str


def incumbent_curve(points: Sequence[CurvePoint], *, until_s: float) -> Chart:
    """Step lines of flow (trace 0) and bound (trace 1), the incumbents as marks (trace 2).

    The lines end at `until_s`, the age of the run; plan-run.js moves that end, appends before it.
    """
    seconds = [point.elapsed_s for point in points]
    flows = [point.flow_tokens_per_s for point in points]
    bounds = [point.upper_bound_tokens_per_s for point in points]
    step = {"shape": "hv"}
    traces = [
        go.Scatter(
            name="best flow",
            mode="lines",
            x=[*seconds, until_s],
            y=[*flows, flows[-1] if flows else None],
            line={**step, "color": "var(--accent)", "width": 2.5},
            hoverinfo="skip",
        ),
        go.Scatter(
            name="proven upper bound",
            mode="lines",
            x=[*seconds, until_s],
            y=[*bounds, bounds[-1] if bounds else None],
            line={**step, "color": "var(--warn)", "width": 2, "dash": "dash"},
            hovertemplate="%{x:.1f} s: at most %{y:,.1f} tokens/s<extra></extra>",
        ),
        go.Scatter(
            mode="markers",
            showlegend=False,
            x=seconds,
            y=flows,
            customdata=[point.placer for point in points],
            marker={"size": 7, "color": "var(--accent)"},
            hovertemplate="%{x:.1f} s: %{y:,.1f} tokens/s by %{customdata}<extra></extra>",
        ),
    ]
    layout = {
        "uirevision": "incumbents",
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
        "margin": {"l": 8, "r": 16, "t": 34, "b": 44},
        "xaxis": {"title": {"text": "seconds since the run started"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": "tokens/s"}, "rangemode": "tozero"},
    }
    return Chart(
        figure=figure_json(traces, layout),
        summary=_summary(points),
        columns=("Time (s)", "Flow (tokens/s)", "Bound (tokens/s)", "Placer"),
        rows=tuple(
            (
                f"{point.elapsed_s:.1f}",
                tokens_per_s(point.flow_tokens_per_s),
                UNKNOWN
                if point.upper_bound_tokens_per_s is None
                else tokens_per_s(point.upper_bound_tokens_per_s),
                point.placer,
            )
            for point in points
        ),
    )


def _summary(points: Sequence[CurvePoint]) -> str:
    if not points:
        return "No placement has been found yet."
    last = points[-1]
    text = (
        f"Best flow {tokens_per_s(last.flow_tokens_per_s)} tokens/s by {last.placer} after "
        f"{last.elapsed_s:.1f} s"
    )
    if last.upper_bound_tokens_per_s is None:
        return f"{text}; no bound is proven yet."
    return f"{text}; no plan can exceed {tokens_per_s(last.upper_bound_tokens_per_s)} tokens/s."
