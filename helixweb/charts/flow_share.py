"""Which share of all tokens passed each node, beside the share that the plan gave it."""

from collections.abc import Sequence
from dataclasses import dataclass

from helixweb.charts.chart import (
    MOST_BARS,
    UNKNOWN,
    Chart,
    Trace,
    figure_json,
    node_axis,
    plain,
    those_drawn,
    trace,
)
from helixweb.words import gettext as _

# Two bars a node, axis and legend.
PAIR_HEIGHT_PX = 34
MARGIN_PX = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowShare:
    """Of one node, 0 to 1; `measured` None: nothing passed the cluster lately."""

    node: str
    planned: float
    measured: float | None


def flow_share(shares: Sequence[FlowShare]) -> Chart:
    """Bars in the order given, first on top. Trace 0 is measured, trace 1 planned.

    Of more than `MOST_BARS` nodes those farthest from the plan, the farthest first.
    """
    of = len(shares)
    if of > MOST_BARS:
        shares = sorted(shares, key=_gap, reverse=True)[:MOST_BARS]
    nodes = [share.node for share in shares]
    traces = [
        _bars(_("measured"), nodes, [share.measured for share in shares], colour="var(--accent)"),
        _bars(_("planned"), nodes, [share.planned for share in shares], colour="var(--muted)"),
    ]
    layout = {
        "height": max(200, MARGIN_PX + PAIR_HEIGHT_PX * len(shares)),
        "barmode": "group",
        "bargap": 0.3,
        "uirevision": "nodes",
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
        "margin": {"l": 8, "r": 24, "t": 34, "b": 44},
        "xaxis": {
            "title": {"text": _("share of all tokens")},
            "range": [0, 1.02],
            "tickformat": ".0%",
        },
        "yaxis": node_axis(nodes),
    }
    return Chart(
        figure=figure_json(traces, layout),
        summary=_summary(shares) + those_drawn("farthest", of),
        columns=(_("Node"), _("Measured"), _("Planned")),
        rows=tuple(
            (share.node, _percent(share.measured), _percent(share.planned)) for share in shares
        ),
    )


def _bars(name: str, nodes: list[str], values: Sequence[float | None], *, colour: str) -> Trace:
    return trace(
        "bar",
        name=name,
        orientation="h",
        y=nodes,
        x=list(values),
        marker={"color": colour},
        customdata=[plain(node) for node in nodes],
        hovertemplate="%{customdata}: %{x:.1%}<extra>" + name + "</extra>",
    )


def _summary(shares: Sequence[FlowShare]) -> str:
    gaps = [
        (abs(share.measured - share.planned), share)
        for share in shares
        if share.measured is not None
    ]
    if not gaps:
        return _("No token passed in the last minute.")
    widest = max(gaps, key=lambda gap: gap[0])[1]
    return _("Farthest from the plan: %(node)s, %(measured)s measured, %(planned)s planned.") % {
        "node": widest.node,
        "measured": _percent(widest.measured),
        "planned": _percent(widest.planned),
    }


def _gap(share: FlowShare) -> float:
    return abs((share.measured or 0.0) - share.planned)


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share:.1%}"
