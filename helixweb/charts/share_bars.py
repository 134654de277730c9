"""Shares between 0 and 1 as horizontal bars: of nodes, of their part of the flow, of links."""

from collections.abc import Sequence
from typing import NamedTuple

from helixweb.charts.chart import (
    MOST_BARS,
    SHARES,
    Chart,
    Trace,
    percent,
    plain,
    row_bars,
    rows_figure,
    shortened,
    those_drawn,
)
from helixweb.charts.quantities import bit_rate_text
from helixweb.words import gettext as _
from planner import LinkForecast

# Two bars a node, axis and legend.
PAIR_HEIGHT_PX = 34
MARGIN_PX = 110
MOST_LINKS = 20


class NodeShare(NamedTuple):
    """A node's share (None: unknown), and the same in words."""

    node: str
    share: float | None
    text: str


class FlowShare(NamedTuple):
    """A node's share of all tokens; `measured` None: no recent traffic in the cluster."""

    node: str
    planned: float
    measured: float | None


def node_bars(shares: Sequence[NodeShare], *, what: str) -> Chart:
    """Bars in the order given, first on top; one trace (a script may replace its x and text).

    If there are more than `MOST_BARS` nodes, those with the highest shares, highest first.
    """
    of = len(shares)
    if of > MOST_BARS:
        shares = sorted(shares, key=lambda row: -(row.share or 0.0))[:MOST_BARS]
    names = [row.node for row in shares]
    bars = row_bars(
        names,
        [row.share for row in shares],
        list(map(plain, names)),
        text=[row.text for row in shares],
        marker={"color": "var(--accent)"},
        hovertemplate="%{customdata}: %{text}<extra></extra>",
    )
    known = [row for row in shares if row.share is not None]
    busiest = max(known, key=lambda row: row.share or 0.0, default=None)
    return Chart(
        figure=rows_figure([bars], names, x=what, xaxis=SHARES, uirevision="nodes"),
        summary=_("Highest %(what)s: %(node)s, %(share)s.")
        % {"what": what, "node": busiest.node, "share": percent(busiest.share, decimals=0)}
        + those_drawn("highest", of)
        if busiest
        else _("No node has reported yet."),
        columns=(_("Node"), what[0].upper() + what[1:], _("In words")),
        rows=tuple((row.node, percent(row.share), row.text) for row in shares),
    )


def flow_share(shares: Sequence[FlowShare]) -> Chart:
    """Which share of all tokens passed each node, beside the share that the plan gave it.

    Bars in the order given, first on top. Trace 0 is measured, trace 1 planned. Of more than
    `MOST_BARS` nodes those farthest from the plan, the farthest first.
    """
    of = len(shares)
    if of > MOST_BARS:
        shares = sorted(shares, key=_gap, reverse=True)[:MOST_BARS]
    names = [share.node for share in shares]

    def bars(name: str, values: Sequence[float | None], colour: str) -> Trace:
        hover = "%{customdata}: %{x:.1%}<extra>" + name + "</extra>"
        hovers = list(map(plain, names))
        return row_bars(
            names, values, hovers, name=name, marker={"color": colour}, hovertemplate=hover
        )

    known = [share for share in shares if share.measured is not None]
    widest = max(known, key=_gap, default=None)
    return Chart(
        figure=rows_figure(
            [
                bars(_("measured"), [share.measured for share in shares], "var(--accent)"),
                bars(_("planned"), [share.planned for share in shares], "var(--muted)"),
            ],
            names,
            x=_("share of all tokens"),
            has_legend=True,
            xaxis=SHARES,
            height=max(200, MARGIN_PX + PAIR_HEIGHT_PX * len(shares)),
            barmode="group",
            uirevision="nodes",
        ),
        summary=_("Farthest from the plan: %(node)s, %(measured)s measured, %(planned)s planned.")
        % {
            "node": widest.node,
            "measured": percent(widest.measured),
            "planned": percent(widest.planned),
        }
        + those_drawn("farthest", of)
        if widest
        else _("No token passed in the last minute."),
        columns=(_("Node"), _("Measured"), _("Planned")),
        rows=tuple(
            (share.node, percent(share.measured), percent(share.planned)) for share in shares
        ),
    )


def _gap(share: FlowShare) -> float:
    return abs((share.measured or 0.0) - share.planned)


def link_bars(links: Sequence[LinkForecast]) -> Chart:
    """The share of time that links transmit: the busiest as bars, all of them in the table."""
    ordered = sorted(links, key=lambda link: (-link.utilisation, link.source, link.target))
    shown = ordered[:MOST_LINKS]
    names = [f"{link.source} → {link.target}" for link in shown]
    bars = row_bars(
        names,
        [link.utilisation for link in shown],
        [
            _("%(source)s → %(target)s: %(bytes_per_s)s, %(queued)s messages wait")
            % {
                "source": plain(link.source),
                "target": plain(link.target),
                "bytes_per_s": bit_rate_text(link.bytes_per_s),
                "queued": f"{link.queued:.1f}",
            }
            for link in shown
        ],
        text=[f"{link.utilisation:.0%}" for link in shown],
        marker={"color": "var(--accent)"},
    )
    labels = [f"{shortened(link.source)} → {shortened(link.target)}" for link in shown]
    return Chart(
        figure=rows_figure([bars], names, x=_("time transmitting"), labels=labels, xaxis=SHARES),
        summary=_busiest_link(ordered),
        columns=(
            _("From"), _("To"), _("Transmitting"), _("Rate"), _("Messages waiting"), _("Most"),
        ),
        rows=tuple(
            (
                link.source,
                link.target,
                percent(link.utilisation),
                bit_rate_text(link.bytes_per_s),
                f"{link.queued:.2f}",
                link.queued_peak,
            )
            for link in ordered
        ),
    )  # fmt: skip


def _busiest_link(ordered: Sequence[LinkForecast]) -> str:
    if not ordered:
        return _("No link carried anything.")
    busiest = ordered[0]
    text = _("Busiest link: %(source)s → %(target)s, %(busy)s of the time") % {
        "source": busiest.source,
        "target": busiest.target,
        "busy": f"{busiest.utilisation:.0%}",
    }
    if len(ordered) <= MOST_LINKS:
        return f"{text}."
    return _("%(text)s; the %(shown)s busiest are shown.") % {"text": text, "shown": MOST_LINKS}
