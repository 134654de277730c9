"""Progress of a plan run over time: objective, flow and bound (Helix Fig. 12)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from helixweb.charts.chart import (
    Chart,
    Trace,
    axes_layout,
    figure_json,
    number_text,
    rate_text,
    tokens_per_s,
    trace,
)
from helixweb.words import gettext as _


class CurvePoint(Protocol):
    """The state `elapsed_s` after the start; rows of incumbents have it.

    The bound is None while there is none; a script gets `pk` when the mark is clicked.
    """

    pk: Any
    elapsed_s: Any
    flow_tokens_per_s: Any
    upper_bound_tokens_per_s: Any
    placer: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveGoal:
    """An objective other than the flow, its values and what bounds them.

    Units of tokens/s share the flow's axis.
    """

    name: str
    unit: str
    values: Sequence[float | None]
    bounds: Sequence[float | None] = ()
    known: Literal["estimated", "exact"] = "estimated"

    @property
    def axis(self) -> str:
        return "y" if self.unit.endswith("tokens/s") else "y2"


def incumbent_curve(
    points: Sequence[CurvePoint], *, until_s: float, goal: CurveGoal | None = None
) -> Chart:
    """Step lines of flow (trace 0) and bound (trace 1), the incumbents as marks (trace 2).

    With a `goal` the marks are on its line (trace 3), its bound is trace 4, and the flow is that of
    the best by the goal. The lines end at `until_s`, the age of the run; plan-run.js moves that end
    and adds points before it.
    """
    seconds = [point.elapsed_s for point in points]
    flows = [point.flow_tokens_per_s for point in points]
    values = flows if goal is None else goal.values
    best: dict[str, Any] = {"color": "var(--accent)", "width": 2.5}
    bounding = {"color": "var(--warn)", "width": 2, "dash": "dash"}
    fainter = {"color": "var(--muted)", "width": 2, "dash": "dot"}
    plain = {"hoverinfo": "skip"}
    at_most = _("%{x:.1f} s: at most %{y:,.1f} tokens/s") + "<extra></extra>"

    def steps(of: Sequence[float | None], line: dict[str, Any], **more: Any) -> Trace:
        return trace(
            "scatter",
            mode="lines",
            x=[*seconds, until_s],
            y=[*of, of[-1] if of else None],
            line={"shape": "hv", **line},
            **more,
        )

    traces = [
        steps(flows, best, name=_("best flow"), **plain)
        if goal is None
        else steps(flows, {"color": "var(--muted)", "width": 2}, name=_("its flow"), **plain),
        steps(
            [point.upper_bound_tokens_per_s for point in points],
            bounding if goal is None else fainter,
            name=_("proven upper bound") if goal is None else _("upper bound of flows"),
            hovertemplate=at_most,
        ),
        trace(
            "scatter",
            mode="markers",
            showlegend=False,
            ids=[str(point.pk) for point in points],
            x=seconds,
            y=values,
            yaxis="y" if goal is None else goal.axis,
            customdata=[point.placer for point in points],
            marker={"size": 7, "color": "var(--accent)"},
            hovertemplate="%{x:.1f} s: %{y:,.4g} "
            + ("tokens/s" if goal is None else _(goal.unit))
            + ", %{customdata}<extra></extra>",
        ),
    ]
    layout = axes_layout(
        _("seconds since the run started"),
        has_legend=True,
        uirevision="incumbents",
        xaxis={"rangemode": "tozero"},
        yaxis={"title": {"text": _("tokens/s")}, "rangemode": "tozero"},
    )
    if goal is not None:
        name = f"{_(goal.name).lower()} ({_(goal.known)})"
        traces.append(steps(values, best, name=name, yaxis=goal.axis, **plain))
        if goal.bounds and goal.axis == "y":
            name = _("proven upper bound")
            traces.append(steps(goal.bounds, bounding, name=name, hovertemplate=at_most))
    if goal is not None and goal.axis == "y2":
        layout["yaxis2"] = {
            "title": {"text": _(goal.unit)},
            "rangemode": "tozero",
            "tickmode": "auto",
            "overlaying": "y",
            "side": "right",
            "showgrid": False,
        }
    title = () if goal is None else (f"{_(goal.name)} ({_(goal.unit)})",)
    return Chart(
        figure=figure_json(traces, layout),
        summary=_summary(points, goal),
        columns=(
            _("Time (s)"), *title, _("Flow (tokens/s)"), _("Bound (tokens/s)"), _("Placer"),
        ),
        rows=tuple(
            (
                f"{point.elapsed_s:.1f}",
                *(() if goal is None else (number_text(value),)),
                tokens_per_s(point.flow_tokens_per_s),
                rate_text(point.upper_bound_tokens_per_s),
                point.placer,
            )
            for point, value in zip(points, values, strict=True)
        ),
    )  # fmt: skip


def _summary(points: Sequence[CurvePoint], goal: CurveGoal | None) -> str:
    if not points:
        return _("No placement has been found yet.")
    last = points[-1]
    said = {
        "flow": f"{tokens_per_s(last.flow_tokens_per_s)} {_('tokens/s')}",
        "reached": _("%(placer)s after %(elapsed_s)s s")
        % {"placer": last.placer, "elapsed_s": f"{last.elapsed_s:.1f}"},
    }
    text = _("Best flow %(flow)s by %(reached)s") % said
    bounded = _("%(text)s; no plan can exceed %(bound)s tokens/s.")
    if goal is not None:
        said |= {"name": _(goal.name), "unit": _(goal.unit), "last": number_text(goal.values[-1])}
        text = _("%(name)s %(last)s %(unit)s by %(reached)s, with a flow of %(flow)s") % said
        bounded = _("%(text)s; no flow can exceed %(bound)s tokens/s.")
        if goal.bounds and goal.bounds[-1] is not None:
            bounded = _("%(text)s; no plan can exceed %(bound)s tokens/s.")
            return bounded % {"text": text, "bound": tokens_per_s(goal.bounds[-1])}
    if last.upper_bound_tokens_per_s is None:
        return _("%(text)s; no bound is proven yet.") % {"text": text}
    return bounded % {"text": text, "bound": tokens_per_s(last.upper_bound_tokens_per_s)}
