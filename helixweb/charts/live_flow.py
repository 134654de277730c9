"""The flow of now on the graph of the one that was planned: what passes, and how full all is."""

from collections.abc import Mapping
from typing import NamedTuple

from helixweb.charts.chart import (
    UNKNOWN,
    Cell,
    Chart,
    Legend,
    percent,
    plain,
    shortened,
    tokens_per_s,
)
from helixweb.charts.plan_graph import Edge, Ends, PlanGraph
from helixweb.words import gettext as _
from helixweb.words import gettext_noop
from planner.domain.cluster import SOURCE

# Okabe-Ito; what a colour says stands in the table in words, too.
LESS, AS_PLANNED, MORE, NOTHING = "#E69F00", "#0072B2", "#CC79A7", "#999999"
WORDS = {
    LESS: gettext_noop("less than planned"),
    AS_PLANNED: gettext_noop("as planned"),
    MORE: gettext_noop("more than planned"),
    NOTHING: gettext_noop("nothing passed"),
}
# A connection within this of its planned share carries what was planned.
TOLERANCE = 0.25
LOADED, FULL = 0.5, 0.85  # shares of a node's time, or of a link's rate
IDLE_COLOUR, LOADED_COLOUR, FULL_COLOUR = "#009E73", "#E69F00", "#D55E00"
LOAD_WORDS = {
    IDLE_COLOUR: gettext_noop("below 50 %"),
    LOADED_COLOUR: gettext_noop("50 to 85 %"),
    FULL_COLOUR: gettext_noop("above 85 %"),
    NOTHING: gettext_noop("not known"),
}

# Tokens/s by (source, target); None: not known.
Measured = Mapping[Ends, float] | None


class _Link(NamedTuple):
    """An edge, and the tokens/s measured on it; None: not known."""

    edge: Edge
    measured: float | None

    @property
    def used(self) -> float | None:
        """Share of what it can carry."""
        if self.measured is None or self.edge.capacity_tokens_per_s <= 0:
            return None
        return self.measured / self.edge.capacity_tokens_per_s

    @property
    def text(self) -> str:
        return UNKNOWN if self.measured is None else tokens_per_s(self.measured)


def measured_flow(graph: PlanGraph, measured: Measured) -> Chart:
    """Links as wide as planned, coloured by how their share of the flow compares with the plan's.

    Shares are compared, not rates: at half the load every link carries half of what it could.
    """
    links = _links(graph, measured)
    whole = None
    if measured is not None:
        whole = sum(rate for (source, _), rate in measured.items() if source == SOURCE)
    planned_whole = graph.plan.flow.value_tokens_per_s
    colours = [_colour(link, whole=whole or 0.0, planned_whole=planned_whole) for link in links]
    texts = [
        _("%(measured)s measured, %(planned)s planned tokens/s")
        % {"measured": link.text, "planned": tokens_per_s(link.edge.flow_tokens_per_s)}
        + f"<br>{_(WORDS[colour])}"
        for link, colour in zip(links, colours, strict=True)
    ]
    drawn = graph.drawn()
    return _chart(
        graph,
        [(tokens_per_s(link.edge.flow_tokens_per_s), _(WORDS[colour]))
         for link, colour in zip(links, colours, strict=True)],
        links=links,
        columns=(_("Planned (tokens/s)"), _("Share of the flow")),
        words=WORDS,
        summary=_summary(colours, whole),
        colours=["var(--muted)"] * len(drawn),
        texts=[vertex.title for vertex in drawn],
        link_colours=colours,
        link_texts=texts,
    )  # fmt: skip


def load_flow(graph: PlanGraph, measured: Measured, busy: Mapping[str, float | None]) -> Chart:
    """Links as wide as planned; nodes coloured by the share of their time that they compute, links
    by the share of what they can carry. Of a group the fullest node counts.
    """
    links = _links(graph, measured)
    busiest: dict[str, float] = {}
    for node, share in busy.items():
        if node in graph.key_of and share is not None:
            title = graph.vertices[graph.key_of[node]].whole_title
            busiest[title] = max(share, busiest.get(title, 0.0))
    drawn = graph.drawn()
    shares = [busiest.get(vertex.whole_title) for vertex in drawn]
    return _chart(
        graph,
        [(tokens_per_s(link.edge.capacity_tokens_per_s), percent(link.used, decimals=0))
         for link in links],
        links=links,
        columns=(_("Carries (tokens/s)"), _("In use")),
        words=LOAD_WORDS,
        summary=_load_summary(graph, links, busiest),
        colours=[_load_colour(share) for share in shares],
        texts=[
            f"{vertex.title}: {percent(share, decimals=0)}" if vertex.layers else vertex.title
            for vertex, share in zip(drawn, shares, strict=True)
        ],
        link_colours=[_load_colour(link.used) for link in links],
        link_texts=[
            _("%(measured)s tokens/s, %(used)s of what the link carries")
            % {"measured": link.text, "used": percent(link.used, decimals=0)}
            for link in links
        ],
    )  # fmt: skip


def _links(graph: PlanGraph, measured: Measured) -> list[_Link]:
    passed = [0.0] * len(graph.edges)
    for ends, rate in (measured or {}).items():
        if ends in graph.edge_of:
            passed[graph.edge_of[ends]] += rate
    return [
        _Link(edge, None if measured is None else rate)
        for edge, rate in zip(graph.edges, passed, strict=True)
    ]


def _chart(
    graph: PlanGraph,
    cells: list[tuple[Cell, Cell]],
    *,
    links: list[_Link],
    columns: tuple[str, str],
    words: Mapping[str, str],
    summary: str,
    colours: list[str],
    texts: list[str],
    link_colours: list[str],
    link_texts: list[str],
) -> Chart:
    """`cells` are the last two of the table's `columns`; `words` says what colours mean."""
    return Chart(
        figure=graph.figure(
            labels=[shortened(vertex.title) for vertex in graph.drawn()],
            colours=colours,
            texts=list(map(plain, texts)),
            link_colours=[f"{colour}99" for colour in link_colours],
            link_texts=link_texts,
        ),
        summary=summary,
        columns=(_("From"), _("To"), _("Measured (tokens/s)"), *columns),
        rows=tuple(
            (*(vertex.whole_title for vertex in graph.ends(link.edge)), link.text, *last)
            for link, last in zip(links, cells, strict=True)
        ),
        legend=tuple(Legend(colour=colour, label=_(label)) for colour, label in words.items()),
    )


def _colour(link: _Link, *, whole: float, planned_whole: float) -> str:
    if not link.measured or whole <= 0:
        return NOTHING
    ratio = (link.measured / whole) / (link.edge.flow_tokens_per_s / planned_whole)
    if ratio < 1 - TOLERANCE:
        return LESS
    return MORE if ratio > 1 + TOLERANCE else AS_PLANNED


def _load_colour(share: float | None) -> str:
    if share is None:
        return NOTHING
    if share < LOADED:
        return IDLE_COLOUR
    return LOADED_COLOUR if share <= FULL else FULL_COLOUR


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


def _load_summary(graph: PlanGraph, links: list[_Link], busiest: Mapping[str, float]) -> str:
    if not busiest:
        return _("No node is reporting.")
    node = max(busiest, key=lambda name: busiest[name])
    said = {"node": node, "share": percent(busiest[node], decimals=0)}
    known = [link for link in links if link.used is not None]
    if not known:
        return _("Busiest node: %(node)s, %(share)s of its time.") % said
    fullest = max(known, key=lambda link: link.used or 0.0)
    source, target = graph.ends(fullest.edge)
    return _(
        "Busiest node: %(node)s, %(share)s of its time. Fullest link: %(source)s → %(target)s, "
        "%(used)s of its rate."
    ) % {
        **said,
        "source": source.whole_title,
        "target": target.whole_title,
        "used": percent(fullest.used, decimals=0),
    }
