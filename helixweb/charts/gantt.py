"""Where one request was when: a row for every stage and link it passed, its tokens on top."""

from collections.abc import Sequence
from dataclasses import dataclass

from helixweb.charts.chart import (
    Chart,
    Legend,
    Trace,
    plain,
    row_bars,
    rows_figure,
    trace,
)
from helixweb.charts.quantities import duration_text
from helixweb.words import gettext as _
from helixweb.words import gettext_noop, ngettext

# Okabe-Ito; what belongs to the prompt is hatched as well.
COLOURS = {
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
    "lost": gettext_noop("begun anew"),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """In `row` from `begins_s` to `ends_s` after the arrival, `busy_s` of it, `count` times."""

    row: str
    kind: str
    phase: str
    begins_s: float
    ends_s: float
    busy_s: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A part of the end-to-end time; parts follow one another."""

    row: str
    kind: str
    phase: str
    seconds: float
    count: int


def gantt(
    *,
    rows: Sequence[str],
    bars: Sequence[Bar],
    shares: Sequence[Share],
    tokens_s: Sequence[float],
    end_to_end_s: float,
) -> Chart:
    """`rows` from top to bottom; tokens are drawn in the first. The table has the shares."""
    kinds = [
        (kind, phase)
        for kind in COLOURS
        for phase in PHASES
        if any((bar.kind, bar.phase) == (kind, phase) for bar in bars)
    ]
    traces: list[Trace] = [
        _bars(kind, phase, [bar for bar in bars if (bar.kind, bar.phase) == (kind, phase)])
        for kind, phase in kinds
    ]
    if tokens_s:
        traces.append(_tokens(rows[0], tokens_s))
    return Chart(
        figure=rows_figure(
            traces,
            rows,
            x=_("seconds since the request arrived"),
            xaxis={"range": [-0.01 * end_to_end_s, 1.01 * end_to_end_s], "zeroline": False},
            width=LEAST_WIDTH_PX,
            barmode="overlay",
        ),
        summary=_summary(shares, end_to_end_s=end_to_end_s, tokens=len(tokens_s)),
        columns=(_("Where"), _("What"), _("Of"), _("Times"), _("Seconds"), _("Share")),
        rows=tuple(
            (
                share.row,
                _(TITLES[share.kind]),
                _(PHASES[share.phase]) if share.kind not in _AT_COORDINATOR else "",
                share.count,
                f"{share.seconds:.4f}",
                _percent(share.seconds, end_to_end_s),
            )
            for share in shares
        ),
        legend=tuple(
            Legend(colour=COLOURS[kind], label=_(TITLES[kind]))
            for kind in dict.fromkeys(kind for kind, _phase in kinds)
        ),
    )


def _bars(kind: str, phase: str, bars: Sequence[Bar]) -> Trace:
    shared = kind in _AT_COORDINATOR
    return row_bars(
        [bar.row for bar in bars],
        [bar.ends_s - bar.begins_s for bar in bars],
        [[plain(bar.row), _bar_text(bar)] for bar in bars],
        name=_(TITLES[kind]) if shared else f"{_(TITLES[kind])} ({_(PHASES[phase])})",
        base=[bar.begins_s for bar in bars],
        marker={
            "color": COLOURS[kind],
            "line": {"width": 0},
            "pattern": {"shape": "/" if phase == "prompt" and not shared else "", "size": 5},
        },
        hovertemplate=f"%{{customdata[0]}}: {_(TITLES[kind])}<br>%{{customdata[1]}}<extra></extra>",
    )


def _bar_text(bar: Bar) -> str:
    text = _("%(busy_s)s, from %(begins_s)s s on") % {
        "busy_s": duration_text(bar.busy_s),
        "begins_s": f"{bar.begins_s:.3f}",
    }
    return (
        text
        if bar.count == 1
        else _("%(count)s times together %(text)s") % {"count": bar.count, "text": text}
    )


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


def _summary(shares: Sequence[Share], *, end_to_end_s: float, tokens: int) -> str:
    """The three largest parts in words."""
    largest = sorted(shares, key=lambda share: -share.seconds)[:3]
    words = [
        f"{_percent(share.seconds, end_to_end_s)} {_(TITLES[share.kind])} ({share.row})"
        for share in largest
        if share.seconds > 0
    ]
    made = ngettext("%(tokens)s token in %(time)s", "%(tokens)s tokens in %(time)s", tokens) % {
        "tokens": tokens,
        "time": duration_text(end_to_end_s),
    }
    return f"{made}: {', '.join(words)}." if words else f"{made}."


def _percent(seconds: float, whole_s: float) -> str:
    return f"{seconds / whole_s:.1%}" if whole_s > 0 else "0.0%"
