"""The flow that was measured beside the one that was planned, as a Sankey diagram."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from helixweb.charts.chart import (
    UNKNOWN,
    Chart,
    Legend,
    Trace,
    figure_json,
    plain,
    shortened,
    tokens_per_s,
    trace,
)
from helixweb.words import gettext as _
from helixweb.words import gettext_noop
from planner.domain.cluster import SINK, SOURCE
from planner.domain.plan import Plan

Ends = tuple[str, str]
# Okabe-Ito; what a colour says stands in the table in words, too.
LESS, AS_PLANNED, MORE, NOTHING = "#E69F00", "#0072B2", "#CC79A7", "#999999"
WORDS = {
    LESS: gettext_noop("less than planned"),
    AS_PLANNED: gettext_noop("as planned"),
    MORE: gettext_noop("more than planned"),
    NOTHING: gettext_noop("nothing passed"),
}
# Within this of its planned share a connection carries what it shall.
TOLERANCE = 0.25
# From this many nodes on those that hold the same layers are drawn as one.
GROUPED_FROM = 64
HEIGHT_PX = 240
PX_PER_NODE = 12
PX_PER_STEP = 110
STEPS_THAT_FIT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    source: str
    target: str
    planned: float
    capacity: float
    measured: float | None

    @property
    def used(self) -> float | None:
        """Share of what it can carry; None: not known."""
        if self.measured is None or self.capacity <= 0:
            return None
        return self.measured / self.capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFlow:
    """What of the diagram is the plan's: tokens/s between its ends, the widest first, and what they
    can carry.

    `ends_of` has those of every connection in use by (source, target); they are nodes, or groups of
    nodes, as `key_of` has them by node.
    """

    value_tokens_per_s: float
    hops: float
    between: Mapping[Ends, float]
    capacity: Mapping[Ends, float]
    ends_of: Mapping[Ends, Ends]
    key_of: Mapping[str, str]


def planned_flow(plan: Plan) -> PlannedFlow:
    """Between nodes; from `GROUPED_FROM` nodes on between those that hold the same layers."""
    layers, key_of = plan.placement.layers, {SOURCE: SOURCE, SINK: SINK}
    grouped, title = len(layers) >= GROUPED_FROM, _("layers %(held)s")
    for name, held in layers.items():
        key_of[name] = title % {"held": held} if grouped else name
    between: defaultdict[Ends, float] = defaultdict(float)
    capacity: defaultdict[Ends, float] = defaultdict(float)
    ends_of: dict[Ends, Ends] = {}
    for edge in plan.flow.edges:
        if edge.flow_tokens_per_s > 0:
            ends = key_of[edge.source], key_of[edge.target]
            between[ends] += edge.flow_tokens_per_s
            capacity[ends] += edge.capacity_tokens_per_s
            ends_of[edge.source, edge.target] = ends
    return PlannedFlow(
        value_tokens_per_s=plan.flow.value_tokens_per_s,
        hops=plan.hops,
        between=dict(sorted(between.items(), key=lambda item: -item[1])),
        capacity=capacity,
        ends_of=ends_of,
        key_of=key_of,
    )


def measured_flow(planned: PlannedFlow, measured: Mapping[Ends, float] | None) -> Chart:
    """Links as wide as planned, coloured by how their share of the flow compares with the plan's.

    `measured` is tokens/s by (source, target); None: not known. Shares are compared, not rates:
    at half the load every link carries half of what it could.
    """
    connections = connections_of(planned, measured)
    whole = None
    if measured is not None:
        whole = sum(rate for (source, _), rate in measured.items() if source == SOURCE)
    colours = [
        _colour(each, whole=whole or 0.0, planned_whole=planned.value_tokens_per_s)
        for each in connections
    ]
    names = distinct_ends(connections)
    texts = [
        _("%(measured)s measured, %(planned)s planned tokens/s")
        % {"measured": rate_text(each), "planned": tokens_per_s(each.planned)}
        + f"<br>{_(WORDS[colour])}"
        for each, colour in zip(connections, colours, strict=True)
    ]
    return Chart(
        figure=figure_json(
            [sankey(connections, names, colours, texts)], flow_layout(planned, names)
        ),
        summary=_summary(colours, whole),
        columns=(
            _("From"),
            _("To"),
            _("Measured (tokens/s)"),
            _("Planned (tokens/s)"),
            _("Share of the flow"),
        ),
        rows=tuple(
            (
                shown_end(each.source),
                shown_end(each.target),
                rate_text(each),
                tokens_per_s(each.planned),
                _(WORDS[colour]),
            )
            for each, colour in zip(connections, colours, strict=True)
        ),
        legend=tuple(Legend(colour=colour, label=_(label)) for colour, label in WORDS.items()),
    )


def connections_of(planned: PlannedFlow, measured: Mapping[Ends, float] | None) -> list[Connection]:
    passed: defaultdict[Ends, float] = defaultdict(float)
    for connection, rate in (measured or {}).items():
        if connection in planned.ends_of:
            passed[planned.ends_of[connection]] += rate
    return [
        Connection(
            source=ends[0],
            target=ends[1],
            planned=rate,
            capacity=planned.capacity[ends],
            measured=None if measured is None else passed[ends],
        )
        for ends, rate in planned.between.items()
    ]


def _colour(each: Connection, *, whole: float, planned_whole: float) -> str:
    if not each.measured or whole <= 0:
        return NOTHING
    ratio = (each.measured / whole) / (each.planned / planned_whole)
    if ratio < 1 - TOLERANCE:
        return LESS
    return MORE if ratio > 1 + TOLERANCE else AS_PLANNED


def distinct_ends(connections: list[Connection]) -> list[str]:
    return list(dict.fromkeys(end for each in connections for end in (each.source, each.target)))


def flow_layout(
    planned: PlannedFlow, names: list[str], *, height_px: int = HEIGHT_PX
) -> dict[str, object]:
    layout: dict[str, object] = {
        "height": height_px + PX_PER_NODE * len(names),
        "margin": {"l": 8, "r": 8, "t": 20, "b": 20},
    }
    steps = round(planned.hops) + 2
    if steps > STEPS_THAT_FIT:
        layout["width"] = PX_PER_STEP * steps
    return layout


def sankey(
    connections: list[Connection],
    names: list[str],
    colours: list[str],
    texts: list[str],
    *,
    node_colours: list[str] | None = None,
    node_texts: list[str] | None = None,
) -> Trace:
    """`texts` are shown over the links, `node_texts` under the names of nodes."""
    number_of = {name: number for number, name in enumerate(names)}
    return trace(
        "sankey",
        textfont={"color": "var(--text)", "size": 11},
        node={
            "label": ["" if name == SINK else shortened(shown_end(name)) for name in names],
            "color": node_colours or "var(--muted)",
            "line": {"width": 0},
            "pad": 18,
            "thickness": 14,
            "customdata": [
                plain(text or shown_end(name))
                for name, text in zip(names, node_texts or [""] * len(names), strict=True)
            ],
            "hovertemplate": "%{customdata}<extra></extra>",
        },
        link={
            "source": [number_of[each.source] for each in connections],
            "target": [number_of[each.target] for each in connections],
            "value": [each.planned for each in connections],
            "color": [f"{colour}99" for colour in colours],
            "customdata": [
                f"{plain(shown_end(each.source))} → {plain(shown_end(each.target))}<br>{text}"
                for each, text in zip(connections, texts, strict=True)
            ],
            "hovertemplate": "%{customdata}<extra></extra>",
        },
    )


def shown_end(name: str) -> str:
    return _("coordinator") if name in (SOURCE, SINK) else name


def rate_text(each: Connection) -> str:
    return UNKNOWN if each.measured is None else tokens_per_s(each.measured)


def _summary(colours: list[str], whole: float | None) -> str:
    if whole is None:
        return _("The flow of this moment is not known.")
    if whole <= 0:
        return _("No token passed in the last minute.")
    off = sum(colour in (LESS, MORE) for colour in colours)
    silent = colours.count(NOTHING)
    return _(
        "%(whole)s tokens/s leave the coordinator; %(off)s of %(count)s "
        "connections carry another share than planned, %(silent)s carried "
        "nothing in the last minute."
    ) % {"whole": tokens_per_s(whole), "off": off, "count": len(colours), "silent": silent}
