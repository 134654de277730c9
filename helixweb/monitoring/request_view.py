"""What the pages of requests show of a trace."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from helixweb.charts.chart import Chart
from helixweb.charts.gantt import Bar, Share, gantt
from planner.domain.cluster import COORDINATOR
from runtime.protocol.request_trace import PartPhase, RequestTrace, TracePart, TraceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeShare:
    """A line of "where the time to the first token went"."""

    label: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """A trace ready to be shown; `explained` is the sum of its parts ÷ the end-to-end time."""

    trace: RequestTrace
    chart: Chart
    explained: float | None
    first_token: tuple[TimeShare, ...]


def request_view(trace: RequestTrace) -> RequestView:
    """Of one traced request."""
    shares = tuple(
        Share(
            row=_label(part),
            kind=part.kind.value,
            phase=part.phase.value,
            seconds=part.seconds,
            count=part.count,
        )
        for part in trace.parts
    )
    total_s = sum(part.seconds for part in trace.parts)
    return RequestView(
        trace=trace,
        chart=gantt(
            rows=_rows(trace),
            bars=_bars(trace.rows),
            shares=shares,
            tokens_s=trace.token_times_s,
            end_to_end_s=trace.e2e_s,
        ),
        explained=total_s / trace.e2e_s if trace.e2e_s > 0 else None,
        first_token=_first_token(trace),
    )


def _rows(trace: RequestTrace) -> list[str]:
    """The coordinator, then links and nodes in the order a token passes them."""
    names = [COORDINATOR]
    before = COORDINATOR
    for stage in trace.pipeline:
        names += [f"{before} → {stage.node}", stage.node]
        before = stage.node
    drawn = {_label(row) for row in trace.rows}
    names += sorted(drawn - set(names))
    return [name for name in names if name == COORDINATOR or name in drawn]


def _bars(rows: Sequence[TraceRow]) -> list[Bar]:
    return [
        Bar(
            row=_label(row),
            kind=row.kind.value,
            phase=row.phase.value,
            begins_s=begins_s,
            ends_s=ends_s,
            busy_s=busy_s,
            count=count,
        )
        for row in rows
        for begins_s, ends_s, busy_s, count in row.spans
    ]


def _first_token(trace: RequestTrace) -> tuple[TimeShare, ...]:
    """TTFT = the parts of the prompt + the way of the first token to the coordinator."""
    if trace.ttft_s is None or trace.ttft_s <= 0 or trace.attempts > 1:
        return ()
    of_prompt = [
        part for part in trace.parts if part.phase == PartPhase.PROMPT and part.to != COORDINATOR
    ]
    totals: dict[str, float] = {}
    for part in of_prompt:
        words = {
            "queue": _("queued at the coordinator"),
            "wait": _("waiting at %(node)s") % {"node": part.node},
            "compute": _("computing on %(node)s") % {"node": part.node},
            "engine": _("in the instance on %(node)s") % {"node": part.node},
            "transfer": _("from %(node)s to %(to)s") % {"node": part.node, "to": part.to},
        }.get(part.kind.value, part.kind.value)
        totals[words] = totals.get(words, 0.0) + part.seconds
    totals[_("the first token to the coordinator")] = max(0.0, trace.ttft_s - sum(totals.values()))
    return tuple(
        TimeShare(label=label, seconds=seconds, share=seconds / trace.ttft_s)
        for label, seconds in totals.items()
    )


def _label(of: TracePart | TraceRow) -> str:
    return of.node if of.to is None else f"{of.node} → {of.to}"
