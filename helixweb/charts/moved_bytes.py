"""Objective against bytes moved: the Pareto front of a replanning's answers."""

from collections.abc import Mapping, Sequence
from typing import Any

from helixweb.charts.chart import Chart, axes_layout, figure_json, trace
from helixweb.charts.quantities import bytes_text
from helixweb.words import gettext as _

GB = 1e9


Answer = Mapping[str, Any]  # "moved_bytes", "figure" (with plotted), "method", "placement"


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
        summary=_summary(answers),
        columns=(_("Moved"), title, _("Found by")),
        rows=tuple(
            (bytes_text(answer["moved_bytes"]), answer["figure"].text, answer["method"])
            for answer in answers
        ),
    )


def _summary(answers: Sequence[Answer]) -> str:
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
