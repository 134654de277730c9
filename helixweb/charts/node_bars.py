"""One horizontal bar per node of a share between 0 and 1: KV cache in use, time spent computing."""

from collections.abc import Sequence
from dataclasses import dataclass

from helixweb.charts.chart import (
    MOST_BARS,
    UNKNOWN,
    Chart,
    figure_json,
    height_for_rows,
    node_axis,
    plain,
    those_drawn,
    trace,
)
from helixweb.words import gettext as _


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShare:
    """A node's share, 0 to 1 (None: unknown), and the same in words."""

    node: str
    share: float | None
    text: str


def node_bars(shares: Sequence[NodeShare], *, what: str) -> Chart:
    """Bars in the order given, first on top; one trace, whose x and text a script may replace.

    Of more than `MOST_BARS` nodes those with the highest shares, the highest first.
    """
    of = len(shares)
    if of > MOST_BARS:
        shares = sorted(shares, key=lambda row: -(row.share or 0.0))[:MOST_BARS]
    traces = [
        trace(
            "bar",
            orientation="h",
            y=[row.node for row in shares],
            x=[row.share for row in shares],
            text=[row.text for row in shares],
            textposition="auto",
            cliponaxis=False,
            marker={"color": "var(--accent)"},
            customdata=[plain(row.node) for row in shares],
            hovertemplate="%{customdata}: %{text}<extra></extra>",
        )
    ]
    layout = {
        "height": height_for_rows(len(shares), minimum_px=160),
        "bargap": 0.25,
        "uirevision": "nodes",
        "margin": {"l": 8, "r": 24, "t": 8, "b": 44},
        "xaxis": {"title": {"text": what}, "range": [0, 1.02], "tickformat": ".0%"},
        "yaxis": node_axis([row.node for row in shares]),
    }
    known = [row for row in shares if row.share is not None]
    busiest = max(known, key=lambda row: row.share or 0.0, default=None)
    return Chart(
        figure=figure_json(traces, layout),
        summary=_("Highest %(what)s: %(node)s, %(share)s.")
        % {"what": what, "node": busiest.node, "share": f"{busiest.share:.0%}"}
        + those_drawn("highest", of)
        if busiest
        else _("No node has reported yet."),
        columns=(_("Node"), what[0].upper() + what[1:], _("In words")),
        rows=tuple((row.node, _percent(row.share), row.text) for row in shares),
    )


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share:.1%}"
