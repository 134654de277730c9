"""How full nodes and links are, as a Sankey diagram of the flow that was planned."""

from collections.abc import Mapping

from helixweb.charts.chart import UNKNOWN, Chart, Legend, figure_json, tokens_per_s
from helixweb.charts.measured_flow import (
    NOTHING,
    Connection,
    Ends,
    PlannedFlow,
    connections_of,
    distinct_ends,
    flow_layout,
    rate_text,
    sankey,
    shown_end,
)
from helixweb.words import gettext as _
from helixweb.words import gettext_noop
from planner.domain.cluster import SINK, SOURCE

HEIGHT_PX = 180
LOADED, FULL = 0.5, 0.85  # shares of a node's time, or of a link's rate
IDLE_COLOUR, LOADED_COLOUR, FULL_COLOUR = "#009E73", "#E69F00", "#D55E00"
LOAD_WORDS = {
    IDLE_COLOUR: gettext_noop("below 50 %"),
    LOADED_COLOUR: gettext_noop("50 to 85 %"),
    FULL_COLOUR: gettext_noop("above 85 %"),
    NOTHING: gettext_noop("not known"),
}


def load_flow(
    planned: PlannedFlow,
    measured: Mapping[Ends, float] | None,
    busy: Mapping[str, float | None],
) -> Chart:
    """Links as wide as planned; nodes coloured by the share of their time that they compute, links
    by the share of what they can carry. Of a group the fullest node counts.
    """
    connections = connections_of(planned, measured)
    busiest: dict[str, float] = {}
    for node, share in busy.items():
        key = planned.key_of.get(node)
        if key is not None and share is not None:
            busiest[key] = max(share, busiest.get(key, 0.0))
    names = distinct_ends(connections)
    texts = [
        f"{shown_end(name)}: {_share(busiest.get(name))}" if name not in (SOURCE, SINK) else ""
        for name in names
    ]
    drawn = sankey(
        connections,
        names,
        [_load_colour(each.used) for each in connections],
        [
            _("%(measured)s tokens/s, %(used)s of what the link carries")
            % {"measured": rate_text(each), "used": _share(each.used)}
            for each in connections
        ],
        node_colours=[_load_colour(busiest.get(name)) for name in names],
        node_texts=texts,
    )
    return Chart(
        figure=figure_json([drawn], flow_layout(planned, names, height_px=HEIGHT_PX)),
        summary=_load_summary(connections, busiest),
        columns=(
            _("From"), _("To"), _("Measured (tokens/s)"), _("Carries (tokens/s)"), _("In use"),
        ),
        rows=tuple(
            (
                shown_end(each.source),
                shown_end(each.target),
                rate_text(each),
                tokens_per_s(each.capacity),
                _share(each.used),
            )
            for each in connections
        ),
        legend=tuple(Legend(colour=colour, label=_(label)) for colour, label in LOAD_WORDS.items()),
    )  # fmt: skip


def _load_colour(share: float | None) -> str:
    if share is None:
        return NOTHING
    if share < LOADED:
        return IDLE_COLOUR
    return LOADED_COLOUR if share <= FULL else FULL_COLOUR


def _share(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share:.0%}"


def _load_summary(connections: list[Connection], busiest: Mapping[str, float]) -> str:
    if not busiest:
        return _("No node is reporting.")
    node = max(busiest, key=lambda name: busiest[name])
    known = [each for each in connections if each.used is not None]
    if not known:
        return _("Busiest node: %(node)s, %(share)s of its time.") % {
            "node": node,
            "share": _share(busiest[node]),
        }
    link = max(known, key=lambda each: each.used or 0.0)
    return _(
        "Busiest node: %(node)s, %(share)s of its time. Fullest link: %(source)s → %(target)s, "
        "%(used)s of its rate."
    ) % {
        "node": node,
        "share": _share(busiest[node]),
        "source": shown_end(link.source),
        "target": shown_end(link.target),
        "used": _share(link.used),
    }
