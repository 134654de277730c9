"""What a plan run has reached against time: objective, flow and bound (Helix Fig. 12)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from helixweb.charts.chart import UNKNOWN, Chart, axes_layout, figure_json, tokens_per_s, trace
from helixweb.words import gettext as _


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """What was known `elapsed_s` after the start; the bound is None while there is none.

    `objective_value`, in the goal's unit, is None where the flow is the objective. `id` is what a
    script is told when the mark is clicked.
    """

    elapsed_s: float
    flow_tokens_per_s: float
    upper_bound_tokens_per_s: float | None
    placer: str
    objective_value: float | None = None
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveGoal:
    """An objective other than the flow; units of tokens/s share the flow's axis."""

    name: str
    unit: str
    known: Literal["estimated", "exact"] = "estimated"

    @property
    def axis(self) -> str:
        return "y" if self.unit.endswith("tokens/s") else "y2"


def incumbent_curve(
    points: Sequence[CurvePoint], *, until_s: float, goal: CurveGoal | None = None
) -> Chart:
    """Step lines of flow (trace 0) and bound (trace 1), the incumbents as marks (trace 2).

    With a `goal` the marks stand on its line (trace 3), and the flow is that of the best by the
    goal. The lines end at `until_s`, the age of the run; plan-run.js moves that end, appends
    before it.
    """
    seconds = [point.elapsed_s for point in points]
    values = [point.objective_value for point in points]
    flows = [point.flow_tokens_per_s for point in points]
    bounds = [point.upper_bound_tokens_per_s for point in points]
    step = {"shape": "hv"}
    traces = [
        trace(
            "scatter",
            name=_("best flow") if goal is None else _("its flow"),
            mode="lines",
            x=[*seconds, until_s],
            y=[*flows, flows[-1] if flows else None],
            line={**step, "color": "var(--accent)", "width": 2.5}
            if goal is None
            else {**step, "color": "var(--muted)", "width": 2},
            hoverinfo="skip",
        ),
        trace(
            "scatter",
            name=_("proven upper bound"),
            mode="lines",
            x=[*seconds, until_s],
            y=[*bounds, bounds[-1] if bounds else None],
            line={**step, "color": "var(--warn)", "width": 2, "dash": "dash"},
            hovertemplate=_("%{x:.1f} s: at most %{y:,.1f} tokens/s") + "<extra></extra>",
        ),
        trace(
            "scatter",
            mode="markers",
            showlegend=False,
            ids=[point.id for point in points],
            x=seconds,
            y=flows if goal is None else values,
            yaxis="y" if goal is None else goal.axis,
            customdata=[point.placer for point in points],
            marker={"size": 7, "color": "var(--accent)"},
            hovertemplate="%{x:.1f} s: %{y:,.4g} "
            + ("tokens/s" if goal is None else _(goal.unit))
            + ", %{customdata}<extra></extra>",
        ),
    ]
    if goal is not None:
        traces.append(
            trace(
                "scatter",
                name=f"{_(goal.name).lower()} ({_(goal.known)})",
                mode="lines",
                x=[*seconds, until_s],
                y=[*values, values[-1] if values else None],
                yaxis=goal.axis,
                line={**step, "color": "var(--accent)", "width": 2.5},
                hoverinfo="skip",
            )
        )
    layout = axes_layout(
        _("seconds since the run started"),
        has_legend=True,
        uirevision="incumbents",
        xaxis={"rangemode": "tozero"},
        yaxis={"title": {"text": _("tokens/s")}, "rangemode": "tozero"},
    )
    if goal is not None and goal.axis == "y2":
        layout["yaxis2"] = {
            "title": {"text": _(goal.unit)},
            "rangemode": "tozero",
            "tickmode": "auto",
            "overlaying": "y",
            "side": "right",
            "showgrid": False,
        }
    return Chart(
        figure=figure_json(traces, layout),
        summary=_summary(points, goal),
        columns=(
            _("Time (s)"),
            *(() if goal is None else (f"{_(goal.name)} ({_(goal.unit)})",)),
            _("Flow (tokens/s)"),
            _("Bound (tokens/s)"),
            _("Placer"),
        ),
        rows=tuple(
            (
                f"{point.elapsed_s:.1f}",
                *(() if goal is None else (_value(point),)),
                tokens_per_s(point.flow_tokens_per_s),
                UNKNOWN
                if point.upper_bound_tokens_per_s is None
                else tokens_per_s(point.upper_bound_tokens_per_s),
                point.placer,
            )
            for point in points
        ),
    )


def _value(point: CurvePoint) -> str:
    return UNKNOWN if point.objective_value is None else f"{point.objective_value:,.4g}"


def _summary(points: Sequence[CurvePoint], goal: CurveGoal | None) -> str:
    if not points:
        return _("No placement has been found yet.")
    last = points[-1]
    flow = f"{tokens_per_s(last.flow_tokens_per_s)} {_('tokens/s')}"
    reached = _("%(placer)s after %(elapsed_s)s s") % {
        "placer": last.placer,
        "elapsed_s": f"{last.elapsed_s:.1f}",
    }
    text = _("Best flow %(flow)s by %(reached)s") % {"flow": flow, "reached": reached}
    if goal is not None:
        text = _("%(name)s %(last)s %(unit)s by %(reached)s, with a flow of %(flow)s") % {
            "name": _(goal.name),
            "last": _value(last),
            "unit": _(goal.unit),
            "reached": reached,
            "flow": flow,
        }
    if last.upper_bound_tokens_per_s is None:
        return _("%(text)s; no bound is proven yet.") % {"text": text}
    bound = tokens_per_s(last.upper_bound_tokens_per_s)
    said = (
        _("%(text)s; no plan can exceed %(bound)s tokens/s.")
        if goal is None
        else _("%(text)s; no flow can exceed %(bound)s tokens/s.")
    )
    return said % {
        "text": text,
        "bound": bound,
    }
