"""Phases of a deployment's nodes, as horizontal bars over time."""

from collections.abc import Sequence
from dataclasses import dataclass

from helixweb.charts.chart import Chart, Trace, plain, row_bars, rows_figure
from helixweb.words import gettext as _

# Okabe-Ito, with a word on every bar that is wide enough and in the legend.
COLOURS = {
    "waiting": "#999999",
    "idle": "#C9CED6",
    "loading": "#E69F00",
    "ready": "#009E73",
    "stopping": "#56B4E9",
    "failed": "#D55E00",
    "lost": "#CC79A7",
}

# A message may be long; the table below the chart has it whole.
LONGEST_NOTE = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSpan:
    """A node was in `phase` from `begin_s` to `end_s`, seconds after the deployment began."""

    node: str
    phase: str
    begin_s: float
    end_s: float
    note: str = ""

    @property
    def duration_s(self) -> float:
        return self.end_s - self.begin_s


def phase_timeline(spans: Sequence[PhaseSpan]) -> Chart:
    """One row per node in the order they come, one colour per phase."""
    nodes = list(dict.fromkeys(span.node for span in spans))
    of_phase = {phase: [span for span in spans if span.phase == phase] for phase in COLOURS}
    return Chart(
        figure=rows_figure(
            [_bars(phase, shown) for phase, shown in of_phase.items() if shown],
            nodes,
            x=_("seconds since the deployment began"),
            has_legend=True,
            xaxis={"rangemode": "tozero", "zeroline": False},
            barmode="overlay",
        ),
        summary=_summary(spans, nodes),
        columns=(_("Node"), _("Phase"), _("From (s)"), _("For (s)"), _("Note")),
        rows=tuple(
            (
                span.node,
                _(span.phase),
                round(span.begin_s, 1),
                round(span.duration_s, 1),
                span.note,
            )
            for span in spans
        ),
    )


def _bars(phase: str, spans: Sequence[PhaseSpan]) -> Trace:
    said = f": {_(phase)}, %{{customdata[1]:.1f}} s<br>%{{customdata[2]}}<extra></extra>"
    return row_bars(
        [span.node for span in spans],
        [span.duration_s for span in spans],
        [[plain(span.node), span.duration_s, plain(span.note[:LONGEST_NOTE])] for span in spans],
        name=_(phase),
        base=[span.begin_s for span in spans],
        marker={"color": COLOURS[phase]},
        hovertemplate="%{customdata[0]}" + said,
    )


def _summary(spans: Sequence[PhaseSpan], nodes: Sequence[str]) -> str:
    """The time until every node was ready, or how many are; then the nodes that are lost now."""
    in_order = sorted(spans, key=lambda span: span.begin_s)
    newest = {span.node: span.phase for span in in_order}
    ready_s = {span.node: span.begin_s for span in reversed(in_order) if span.phase == "ready"}
    said = {"ready": len(ready_s), "nodes": len(nodes)}
    text = _("%(ready)s of %(nodes)s nodes have been ready so far.") % said
    if nodes and len(ready_s) == len(nodes):
        longest = f"{max(ready_s.values()):.1f}"
        text = _("All %(nodes)s nodes were ready after %(longest)s s.") % {
            "nodes": len(nodes),
            "longest": longest,
        }
    lost = ", ".join(node for node in nodes if newest[node] == "lost")
    return f"{text} {_('Lost: %(names)s.') % {'names': lost}}" if lost else text
