"""Timelines: one request, with a row for every stage and link it passed, its tokens on top; and the
phases of a deployment's nodes."""

from collections.abc import Sequence
from dataclasses import dataclass

from helixweb.charts.chart import (
    Chart,
    Legend,
    Trace,
    duration_text,
    percent,
    plain,
    row_bars,
    rows_figure,
    trace,
)
from helixweb.words import gettext as _
from helixweb.words import gettext_noop, ngettext
from planner import COORDINATOR
from runtime.protocol.request_trace import RequestTrace, TracePart, TraceRow

# Okabe-Ito; what belongs to the prompt is hatched as well.
PART_COLOURS = {
    "queue": "#999999",
    "lost": "#D55E00",
    "wait": "#E69F00",
    "compute": "#0072B2",
    "engine": "#56B4E9",
    "transfer": "#CC79A7",
    "ending": "#C9CED6",
    "unmeasured": "#C9CED6",
}
TITLES = {
    "queue": gettext_noop("queued"),
    "lost": gettext_noop("begun again"),
    "wait": gettext_noop("waiting at a node"),
    "compute": gettext_noop("computing"),
    "engine": gettext_noop("in the instance"),
    "transfer": gettext_noop("under way"),
    "ending": gettext_noop("after the last token"),
    "unmeasured": gettext_noop("not measured"),
}
PHASES = {"prompt": gettext_noop("prompt"), "decode": gettext_noop("tokens")}
# On a phone it scrolls sideways instead.
LEAST_WIDTH_PX = 560
_AT_COORDINATOR = ("queue", "lost", "ending", "unmeasured")


# Okabe-Ito, with a word on every bar that is wide enough and in the legend.
PHASE_COLOURS = {
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


def gantt(request: RequestTrace) -> Chart:
    """Rows from the coordinator on: links and nodes in the order in which a token passes them;
    tokens are drawn in the first row. The table has the parts of the time."""
    rows, whole_s = _rows(request), request.e2e_s
    kinds = [
        (kind, phase)
        for kind in PART_COLOURS
        for phase in PHASES
        if any((row.kind, row.phase) == (kind, phase) and row.spans for row in request.rows)
    ]
    traces = [_request_bars(request, kind, phase) for kind, phase in kinds]
    if request.token_times_s:
        traces.append(_tokens(rows[0], request.token_times_s))
    return Chart(
        figure=rows_figure(
            traces,
            rows,
            x=_("seconds since the request arrived"),
            xaxis={"range": [-0.01 * whole_s, 1.01 * whole_s], "zeroline": False},
            width=LEAST_WIDTH_PX,
            barmode="overlay",
        ),
        summary=_request_summary(request),
        columns=(_("Where"), _("What"), _("Of"), _("Times"), _("Seconds"), _("Share")),
        rows=tuple(
            (
                _place(part),
                _(TITLES[part.kind]),
                _(PHASES[part.phase]) if part.kind not in _AT_COORDINATOR else "",
                part.count,
                f"{part.seconds:.4f}",
                _share(part.seconds, whole_s),
            )
            for part in request.parts
        ),
        legend=tuple(
            Legend(colour=PART_COLOURS[kind], label=_(TITLES[kind]))
            for kind in dict.fromkeys(kind for kind, _phase in kinds)
        ),
    )


def _rows(request: RequestTrace) -> list[str]:
    names, before = [COORDINATOR], COORDINATOR
    for stage in request.pipeline:
        names += [f"{before} → {stage.node}", stage.node]
        before = stage.node
    drawn = {_place(row) for row in request.rows}
    names += sorted(drawn - set(names))
    return [name for name in names if name == COORDINATOR or name in drawn]


def _place(of: TracePart | TraceRow) -> str:
    return of.node if of.to is None else f"{of.node} → {of.to}"


def _request_bars(request: RequestTrace, kind: str, phase: str) -> Trace:
    shared = kind in _AT_COORDINATOR
    spans = [
        (_place(row), span)
        for row in request.rows
        if (row.kind, row.phase) == (kind, phase)
        for span in row.spans
    ]
    return row_bars(
        [place for place, _span in spans],
        [ends_s - begins_s for _place, (begins_s, ends_s, _busy_s, _count) in spans],
        [[plain(place), _span_text(*span)] for place, span in spans],
        name=_(TITLES[kind]) if shared else f"{_(TITLES[kind])} ({_(PHASES[phase])})",
        base=[span[0] for _place, span in spans],
        marker={
            "color": PART_COLOURS[kind],
            "line": {"width": 0},
            "pattern": {"shape": "/" if phase == "prompt" and not shared else "", "size": 5},
        },
        hovertemplate=f"%{{customdata[0]}}: {_(TITLES[kind])}<br>%{{customdata[1]}}<extra></extra>",
    )


def _span_text(begins_s: float, _ends_s: float, busy_s: float, count: int) -> str:
    text = _("%(busy_s)s, from %(begins_s)s s on") % {
        "busy_s": duration_text(busy_s),
        "begins_s": f"{begins_s:.3f}",
    }
    if count == 1:
        return text
    return _("%(count)s times together %(text)s") % {"count": count, "text": text}


def _tokens(row: str, tokens_s: Sequence[float]) -> Trace:
    return trace(
        "scatter",
        name=_("token"),
        mode="markers",
        x=list(tokens_s),
        y=[row] * len(tokens_s),
        marker={"symbol": "line-ns-open", "size": 11, "color": "var(--text)"},
        customdata=list(range(1, len(tokens_s) + 1)),
        hovertemplate=_("token %{customdata} at %{x:.3f} s") + "<extra></extra>",
    )


def _request_summary(request: RequestTrace) -> str:
    """The three largest parts in words."""
    largest = sorted(request.parts, key=lambda part: -part.seconds)[:3]
    words = [
        f"{_share(part.seconds, request.e2e_s)} {_(TITLES[part.kind])} ({_place(part)})"
        for part in largest
        if part.seconds > 0
    ]
    tokens = len(request.token_times_s)
    made = ngettext("%(tokens)s token in %(time)s", "%(tokens)s tokens in %(time)s", tokens) % {
        "tokens": tokens,
        "time": duration_text(request.e2e_s),
    }
    return f"{made}: {', '.join(words)}." if words else f"{made}."


def _share(seconds: float, whole_s: float) -> str:
    return percent(seconds / whole_s if whole_s > 0 else 0.0)


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
    of_phase = {phase: [span for span in spans if span.phase == phase] for phase in PHASE_COLOURS}
    return Chart(
        figure=rows_figure(
            [_phase_bars(phase, shown) for phase, shown in of_phase.items() if shown],
            nodes,
            x=_("seconds since the deployment began"),
            has_legend=True,
            xaxis={"rangemode": "tozero", "zeroline": False},
            barmode="overlay",
        ),
        summary=_phases_summary(spans, nodes),
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


def _phase_bars(phase: str, spans: Sequence[PhaseSpan]) -> Trace:
    said = f": {_(phase)}, %{{customdata[1]:.1f}} s<br>%{{customdata[2]}}<extra></extra>"
    return row_bars(
        [span.node for span in spans],
        [span.duration_s for span in spans],
        [[plain(span.node), span.duration_s, plain(span.note[:LONGEST_NOTE])] for span in spans],
        name=_(phase),
        base=[span.begin_s for span in spans],
        marker={"color": PHASE_COLOURS[phase]},
        hovertemplate="%{customdata[0]}" + said,
    )


def _phases_summary(spans: Sequence[PhaseSpan], nodes: Sequence[str]) -> str:
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
