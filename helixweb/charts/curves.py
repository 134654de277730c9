"""Curves: objective, flow and bound of a plan run over time (Helix Fig. 12), the Pareto front of a
replanning's answers, and tokens/s against the number of layers held."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal, Protocol

from helixweb.charts.chart import (
    PALETTE,
    Chart,
    Legend,
    Trace,
    axes_layout,
    bytes_text,
    figure_json,
    number_text,
    plain,
    rate_text,
    tokens_per_s,
    trace,
    whole_ticks,
)
from helixweb.words import gettext as _

_SYMBOLS = ("", "■", "◆", "✚", "✖")  # Plotly's first ones; circles need none
GB = 1e9
Answer = Mapping[str, Any]  # "moved_bytes", "figure" (with plotted), "method", "placement"


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
        summary=_curve_summary(points, goal),
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


def _curve_summary(points: Sequence[CurvePoint], goal: CurveGoal | None) -> str:
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
            return _("%(text)s; no plan can exceed %(bound)s %(unit)s.") % {
                "text": text,
                "bound": tokens_per_s(goal.bounds[-1]),
                "unit": _(goal.unit),
            }
    if last.upper_bound_tokens_per_s is None:
        return _("%(text)s; no bound is proven yet.") % {"text": text}
    return bounded % {"text": text, "bound": tokens_per_s(last.upper_bound_tokens_per_s)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedCurve:
    """The entry at index j - 1 is with j layers held; what was not measured is dashed."""

    name: str
    tokens_per_s: tuple[float, ...]
    is_measured: bool


def speed_curves(curves: Sequence[SpeedCurve]) -> Chart:
    """Speed by layers on a logarithmic scale: it falls about as one over the layers."""
    styles = [
        (PALETTE[number % len(PALETTE)], number // len(PALETTE) % len(_SYMBOLS))
        for number in range(len(curves))
    ]
    traces = [
        trace(
            "scatter",
            name=plain(curve.name),
            mode="lines+markers",
            x=list(range(1, len(curve.tokens_per_s) + 1)),
            y=list(curve.tokens_per_s),
            line={"color": colour, "width": 2, "dash": "solid" if curve.is_measured else "dot"},
            marker={"size": 5, "symbol": symbol},
            hovertemplate=f"%{{x}}: %{{y:,.0f}} tokens/s<extra>{plain(curve.name)}</extra>",
        )
        for curve, (colour, symbol) in zip(curves, styles, strict=True)
    ]
    longest = max((len(curve.tokens_per_s) for curve in curves), default=0)
    layout = axes_layout(
        _("layers held"),
        height=320,
        uirevision="speed",
        xaxis={"rangemode": "tozero", **whole_ticks(longest)},
        yaxis={
            "title": {"text": _("tokens/s")},
            "type": "log",
            "dtick": "D2",
            "tickformat": ",.0f",
        },
    )
    return Chart(
        figure=figure_json(traces, layout),
        summary=_speed_summary(curves),
        columns=(_("Layers held"), *(curve.name for curve in curves)),
        rows=tuple(
            (layers, *map(rate_text, speeds))
            for layers, speeds in enumerate(
                zip_longest(*(curve.tokens_per_s for curve in curves)), start=1
            )
        ),
        # In HTML, which finds room on a phone; where colours come again, with the points' symbol.
        legend=tuple(
            Legend(colour=colour, label=f"{curve.name} {_SYMBOLS[symbol]}".rstrip())
            for curve, (colour, symbol) in zip(curves, styles, strict=True)
            if len(curves) > 1
        ),
    )


def _speed_summary(curves: Sequence[SpeedCurve]) -> str:
    known = [curve for curve in curves if curve.tokens_per_s]
    if not known:
        return _("No profile says how fast a node is.")
    fastest = max(known, key=lambda curve: curve.tokens_per_s[0])
    measured = sum(curve.is_measured for curve in known)
    speed = tokens_per_s(fastest.tokens_per_s[0])
    return _(
        "Fastest with one layer: %(name)s, %(speed)s tokens/s; %(measured)s of "
        "%(count)s measured here (solid), the others dotted."
    ) % {"name": fastest.name, "speed": speed, "measured": measured, "count": len(known)}


def moved_bytes(
    answers: Sequence[Answer], *, chosen: Mapping[str, Any] | None, title: str
) -> Chart:
    """Marks for the answers, fewest bytes first, over steps: what so many bytes buy at most; that
    with the placement that was `chosen` is marked. `title` names the figures."""

    def marks(shown: Sequence[Answer], **more: Any) -> dict[str, Any]:
        return trace(
            "scatter",
            x=[answer["moved_bytes"] / GB for answer in shown],
            y=[answer["figure"].plotted for answer in shown],
            **more,
        )

    traces = [
        marks(
            answers,
            name=_("answers"),
            mode="lines+markers",
            customdata=[answer["method"] for answer in answers],
            line={"shape": "hv", "color": "var(--accent)", "width": 2},
            marker={"size": 7, "color": "var(--accent)"},
            hovertemplate="%{x:,.4g} GB: %{y:,.4g}, %{customdata}<extra></extra>",
        ),
        marks(
            [answer for answer in answers if answer["placement"] == chosen],
            name=_("this plan"),
            mode="markers",
            marker={"size": 14, "symbol": "circle-open", "color": "var(--warn)"},
            hoverinfo="skip",
        ),
    ]
    layout = axes_layout(
        _("GB of layers that nodes load again"),
        has_legend=True,
        xaxis={"rangemode": "tozero"},
        yaxis={"title": {"text": title}, "rangemode": "tozero"},
    )
    return Chart(
        figure=figure_json(traces, layout),
        summary=_answers_summary(answers),
        columns=(_("Moved"), title, _("Found by")),
        rows=tuple(
            (bytes_text(answer["moved_bytes"]), answer["figure"].text, answer["method"])
            for answer in answers
        ),
    )


def _answers_summary(answers: Sequence[Answer]) -> str:
    if not answers:
        return _("No answer has been found yet.")
    text = _("%(figure)s with %(moved_bytes)s moved")
    words = [
        text % {"figure": answer["figure"], "moved_bytes": bytes_text(answer["moved_bytes"])}
        for answer in (answers[0], answers[-1])
    ]
    if len(answers) == 1:
        return _("One answer: %(least)s.") % {"least": words[0]}
    return _("From %(least)s to %(most)s.") % {"least": words[0], "most": words[1]}
