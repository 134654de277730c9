"""Horizontal bars: shares between 0 and 1 of nodes, of their part of the flow and of links; flow
against capacity, with what limits a plan in words; and memory by component."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from helixweb.charts.chart import (
    MOST_BARS,
    PALETTE,
    SHARES,
    Chart,
    Legend,
    Trace,
    bit_rate_text,
    bytes_text,
    of_capacity,
    percent,
    plain,
    row_bars,
    rows_figure,
    shortened,
    those_drawn,
    tokens_per_s,
)
from helixweb.words import gettext as _
from helixweb.words import gettext_noop
from planner import SINK, SOURCE, LinkForecast, Plan, Problem

# Two bars a node, axis and legend.
PAIR_HEIGHT_PX = 34
MARGIN_PX = 110
MOST_LINKS = 20


UNITS = (("GB", 1e9), ("MB", 1e6))  # unit of the axis: that of the longest bar
# Okabe-Ito colours for used memory; free and unavailable memory is grey.
_MEMORY_COLOURS = {
    gettext_noop("weights"): PALETTE[0],
    gettext_noop("KV cache in use"): PALETTE[1],
    gettext_noop("KV cache kept for prompts"): PALETTE[6],
    gettext_noop("KV cache room"): PALETTE[1],
    gettext_noop("KV cache free"): "var(--flow)",
    gettext_noop("left for computing"): PALETTE[4],
    gettext_noop("not for the stage"): "var(--line)",
    gettext_noop("left"): "var(--line)",
}
Bars = Mapping[str, Mapping[str, float]]


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


def utilisation(problem: Problem, plan: Plan) -> Chart:
    """One bar per node, the busiest on top; nodes of the min cut are red and say so.

    Of more than `MOST_BARS` nodes only the busiest.
    """
    nodes = plan.flow.nodes
    names = sorted(nodes, key=lambda name: (-nodes[name].utilisation, name))[:MOST_BARS]
    cut = set(plan.flow.min_cut.nodes)
    shares = [nodes[name].utilisation for name in names]
    bars = row_bars(
        names,
        shares,
        [f"{plain(name)}: {of_capacity(nodes[name])}" for name in names],
        text=[
            f"{share:.0%}" + (_(" · min cut") if name in cut else "")
            for name, share in zip(names, shares, strict=True)
        ],
        marker={"color": ["var(--bad)" if name in cut else "var(--accent)" for name in names]},
    )
    full = sum(1 for node in nodes.values() if node.utilisation > 0.999)
    return Chart(
        figure=rows_figure([bars], names, x=_("flow ÷ capacity"), xaxis=SHARES),
        summary=_("%(full)s of %(count)s nodes are used to capacity.")
        % {"full": full, "count": len(nodes)}
        + those_drawn("busiest", len(nodes)),
        columns=(
            _("Node"), "GPU", _("Flow (tokens/s)"), _("Capacity (tokens/s)"), _("Utilisation"),
            _("Limits"),
        ),
        rows=tuple(
            (
                name,
                problem.profile_of(name).gpu,
                tokens_per_s(nodes[name].flow_tokens_per_s),
                tokens_per_s(nodes[name].capacity_tokens_per_s),
                percent(nodes[name].utilisation),
                _("min cut") if name in cut else "",
            )
            for name in names
        ),
    )  # fmt: skip


def bottlenecks(problem: Problem, plan: Plan) -> tuple[str, ...]:
    """A sentence for every member of the min cut, the one with most capacity first."""
    cut, flow = plan.flow.min_cut, plan.flow
    node = _("%(name)s (%(gpu)s): compute limits, %(capacity)s tokens/s with layers %(layers)s.")
    link = _("%(source)s → %(target)s: the link limits, %(capacity)s tokens/s.")
    limits = [
        (
            flow.nodes[name].capacity_tokens_per_s,
            node,
            {
                "name": name,
                "gpu": problem.profile_of(name).gpu,
                "layers": plan.placement.layers[name],
            },
        )
        for name in cut.nodes
    ]
    limits += [
        (
            edge.capacity_tokens_per_s,
            link,
            {"source": _end(edge.source), "target": _end(edge.target)},
        )
        for edge in flow.edges
        if (edge.source, edge.target) in cut.edges
    ]
    said = [
        (-capacity, text % {**names, "capacity": tokens_per_s(capacity)})
        for capacity, text, names in limits
    ]
    return tuple(text for _capacity, text in sorted(said))


def _end(name: str) -> str:
    return _("coordinator") if name in (SOURCE, SINK) else name


def memory_bars(bars: Bars) -> Chart:
    """Bars of bytes by component for each name; components of 0 bytes are left out."""
    longest = max((sum(parts.values()) for parts in bars.values()), default=0.0)
    unit, unit_bytes = next(one for one in UNITS if longest >= one[1] or one is UNITS[-1])
    components = dict.fromkeys(part for parts in bars.values() for part in parts)
    shown = [part for part in components if max(one.get(part, 0.0) for one in bars.values()) > 0]
    names = list(bars)
    traces = [
        row_bars(
            names,
            [bars[name].get(part, 0.0) / unit_bytes for name in names],
            [f"{plain(name)}: {_(part)} {bytes_text(bars[name].get(part, 0.0))}" for name in names],
            name=_(part),
            marker={
                "color": _MEMORY_COLOURS[part],
                "line": {"width": 1, "color": "var(--surface)"},
            },
        )
        for part in shown
    ]
    return Chart(
        figure=rows_figure(
            traces,
            names,
            x=unit,
            xaxis={"rangemode": "tozero"},
            barmode="stack",
            uirevision="memory",
        ),
        summary=_memory_summary(bars),
        columns=("", *(_(part)[0].upper() + _(part)[1:] for part in shown), _("Together")),
        rows=tuple(
            (
                name,
                *(bytes_text(parts.get(part, 0.0)) for part in shown),
                bytes_text(sum(parts.values())),
            )
            for name, parts in bars.items()
        ),
        # In HTML, which finds room on a phone.
        legend=tuple(Legend(colour=_MEMORY_COLOURS[part], label=_(part)) for part in shown),
    )


def _memory_summary(bars: Bars) -> str:
    if not bars:
        return _("Nothing is known of any memory yet.")
    if len(bars) > 1:
        return _("Memory of %(count)s, by component.") % {"count": len(bars)}
    (parts,) = bars.values()
    shown = [f"{_(part)} {bytes_text(size)}" for part, size in parts.items() if size > 0]
    whole = bytes_text(sum(parts.values()))
    return _("Of %(whole)s: %(parts)s.") % {"whole": whole, "parts": ", ".join(shown)}
