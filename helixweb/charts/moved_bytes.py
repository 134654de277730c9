"""Flow against bytes moved: the answers of a replanning that no other beats in both."""

from collections.abc import Mapping, Sequence
from typing import Any

from helixweb.charts.chart import Chart, axes_layout, figure_json, tokens_per_s, trace
from helixweb.charts.quantities import bytes_text
from helixweb.words import gettext as _

GB = 1e9


Answer = Mapping[str, Any]  # "moved_bytes", "flow_tokens_per_s", "method", "placement"


def moved_bytes(answers: Sequence[Answer], *, chosen: Mapping[str, Any] | None) -> Chart:
    """Marks for the answers, fewest bytes first, over steps: what so many bytes buy at most; that
    with the placement that was `chosen` is marked."""
    moved = [answer["moved_bytes"] / GB for answer in answers]
    flows = [answer["flow_tokens_per_s"] for answer in answers]
    own = [index for index, answer in enumerate(answers) if answer["placement"] == chosen]
    traces = [
        trace(
            "scatter",
            name=_("answers"),
            mode="lines+markers",
            x=moved,
            y=flows,
            customdata=[answer["method"] for answer in answers],
            line={"shape": "hv", "color": "var(--accent)", "width": 2},
            marker={"size": 7, "color": "var(--accent)"},
            hovertemplate="%{x:,.4g} GB: %{y:,.1f} tokens/s, %{customdata}<extra></extra>",
        ),
        trace(
            "scatter",
            name=_("this plan"),
            mode="markers",
            x=[moved[index] for index in own],
            y=[flows[index] for index in own],
            marker={"size": 14, "symbol": "circle-open", "color": "var(--warn)"},
            hoverinfo="skip",
        ),
    ]
    layout = axes_layout(
        _("GB of layers that nodes load again"),
        has_legend=True,
        xaxis={"rangemode": "tozero"},
        yaxis={"title": {"text": _("max flow (tokens/s)")}, "rangemode": "tozero"},
    )
    return Chart(
        figure=figure_json(traces, layout),
        summary=_summary(answers),
        columns=(_("Moved"), _("Flow (tokens/s)"), _("Found by")),
        rows=tuple(
            (
                bytes_text(answer["moved_bytes"]),
                tokens_per_s(answer["flow_tokens_per_s"]),
                answer["method"],
            )
            for answer in answers
        ),
    )


def _summary(answers: Sequence[Answer]) -> str:
    if not answers:
        return _("No answer has been found yet.")
    least, most = _words(answers[0]), _words(answers[-1])
    return (
        _("One answer: %(least)s.") % {"least": least}
        if len(answers) == 1
        else _("From %(least)s to %(most)s.") % {"least": least, "most": most}
    )


def _words(answer: Answer) -> str:
    return _("%(flow_tokens_per_s)s tokens/s with %(moved_bytes)s moved") % {
        "flow_tokens_per_s": tokens_per_s(answer["flow_tokens_per_s"]),
        "moved_bytes": bytes_text(answer["moved_bytes"]),
    }
