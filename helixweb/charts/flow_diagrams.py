"""Sankey diagrams from coordinator to coordinator: the flow of a plan, min cut marked; and the flow
of now on the same graph: what passes, and how full all is."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from helixweb.charts.chart import (
    Chart,
    Legend,
    colours_by_name,
    of_capacity,
    percent,
    plain,
    rate_text,
    shortened,
    tokens_per_s,
)
from helixweb.charts.plan_graph import Ends, PlanGraph, Vertex
from helixweb.words import gettext as _
from helixweb.words import gettext_noop
from planner import SOURCE, Plan, Problem

NAMES_SHOWN = 8


# Okabe-Ito palette; the table has the meaning of each colour in words, too.
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


def flow_diagram(problem: Problem, plan: Plan) -> Chart:
    """Links as wide as their flow, nodes coloured by GPU; what limits the flow is red and named."""
    graph = PlanGraph(problem, plan, apart=plan.flow.min_cut.edges)
    colours = colours_by_name([profile.gpu for profile in problem.compute_profiles.values()])
    gpus = sorted({problem.profile_of(name).gpu for name in plan.placement.layers})
    drawn = graph.drawn()
    limits = "<br>" + _("min cut: the link limits here")
    return Chart(
        figure=graph.figure(
            labels=[_label(vertex) for vertex in drawn],
            colours=[_vertex_colour(vertex, colours) for vertex in drawn],
            texts=[_vertex_text(vertex) for vertex in drawn],
            link_colours=["var(--bad)" if edge.in_cut else "var(--flow)" for edge in graph.edges],
            link_texts=[of_capacity(edge) + limits * edge.in_cut for edge in graph.edges],
        ),
        summary=_plan_summary(graph),
        columns=(_("From"), _("To"), _("Flow (tokens/s)"), _("Capacity (tokens/s)"), _("Limits")),
        rows=tuple(
            (
                *(vertex.whole_title for vertex in graph.ends(edge)),
                tokens_per_s(edge.flow_tokens_per_s),
                tokens_per_s(edge.capacity_tokens_per_s),
                _("min cut") if edge.in_cut else "",
            )
            for edge in graph.edges
        ),
        legend=tuple(Legend(colour=colours[gpu], label=gpu) for gpu in gpus),
    )


def _vertex_colour(vertex: Vertex, colours: Mapping[str, str]) -> str:
    if not vertex.layers:
        return "var(--muted)"
    return "var(--bad)" if vertex.in_cut else colours[vertex.gpu]


def _label(vertex: Vertex) -> str:
    if not vertex.layers:
        return vertex.title
    cut = f"<br>{_cut_words(vertex)}" if vertex.in_cut else ""
    return f"{shortened(vertex.title)}<br>{vertex.layers}{cut}"


def _cut_words(vertex: Vertex) -> str:
    """All of it limits, or only some of many."""
    if vertex.in_cut == len(vertex.names):
        return _("min cut")
    return _("min cut: %(in_cut)s") % {"in_cut": vertex.in_cut}


def _vertex_text(vertex: Vertex) -> str:
    if not vertex.layers:
        return f"{vertex.title}: {tokens_per_s(vertex.flow_tokens_per_s)} tokens/s"
    who = plain(vertex.title if vertex.is_group else f"{vertex.title} ({vertex.gpu})")
    text = _("%(who)s, layers %(layers)s") % {"who": who, "layers": vertex.layers}
    text += f"<br>{of_capacity(vertex)}"
    if vertex.is_group:
        more = ", …" if len(vertex.names) > NAMES_SHOWN else ""
        text += f"<br>{', '.join(plain(name) for name in vertex.names[:NAMES_SHOWN])}{more}"
    if vertex.in_cut:
        text += f"<br>{_cut_words(vertex)}: " + _("compute limits here")
    return text


def _plan_summary(graph: PlanGraph) -> str:
    plan, carrying = graph.plan, {end for ends in graph.edge_of for end in ends}
    nodes = len(carrying & plan.placement.layers.keys())
    idle = len(plan.placement.layers) - nodes
    text = _(
        "%(flow)s tokens/s flow through %(nodes)s nodes over "
        "%(count)s connections, %(hops)s stages a request on average"
    ) % {
        "flow": tokens_per_s(plan.flow.value_tokens_per_s),
        "nodes": nodes,
        "count": len(graph.edge_of),
        "hops": f"{plan.hops:.1f}",
    }
    if graph.is_grouped:
        text += _("; nodes with the same layers and GPU are drawn as one")
    return text + (
        _("; %(idle)s nodes hold layers but carry no flow.") % {"idle": idle} if idle else _(".")
    )


class _Link(NamedTuple):
    """Drawing of an edge of the graph, and the last two cells of its table row."""

    colour: str
    text: str
    cells: tuple[str, str]


def measured_flow(graph: PlanGraph, measured: Measured) -> Chart:
    """Links as wide as planned, coloured by how their share of the flow compares with the plan's.

    Shares are compared, not rates: at half the load every link carries half of what it could.
    """
    passed = _passed(graph, measured)
    whole = None
    if measured is not None:
        whole = sum(rate for (source, _), rate in measured.items() if source == SOURCE)
    planned_whole = graph.plan.flow.value_tokens_per_s
    links = []
    for edge, rate in zip(graph.edges, passed, strict=True):
        colour = NOTHING
        if rate and whole:
            colour = _colour((rate / whole) / (edge.flow_tokens_per_s / planned_whole))
        planned = tokens_per_s(edge.flow_tokens_per_s)
        text = _("%(measured)s measured, %(planned)s planned tokens/s") % {
            "measured": rate_text(rate),
            "planned": planned,
        }
        words = _(WORDS[colour])
        links.append(_Link(colour, f"{text}<br>{words}", (planned, words)))
    return _chart(
        graph,
        passed,
        links,
        vertices=[("var(--muted)", vertex.title) for vertex in graph.drawn()],
        columns=(_("Planned (tokens/s)"), _("Share of the flow")),
        words=WORDS,
        summary=_shares_summary([link.colour for link in links], whole),
    )


def load_flow(graph: PlanGraph, measured: Measured, busy: Mapping[str, float | None]) -> Chart:
    """Links as wide as planned; nodes coloured by the share of their time that they compute, links
    by the share of what they can carry. Of a group the fullest node counts.
    """
    passed = _passed(graph, measured)
    used = [
        None if rate is None or edge.capacity_tokens_per_s <= 0
        else rate / edge.capacity_tokens_per_s
        for edge, rate in zip(graph.edges, passed, strict=True)
    ]  # fmt: skip
    busiest: dict[str, float] = {}
    for node, share in busy.items():
        if node in graph.key_of and share is not None:
            title = graph.vertices[graph.key_of[node]].whole_title
            busiest[title] = max(share, busiest.get(title, 0.0))
    links = []
    for edge, rate, share in zip(graph.edges, passed, used, strict=True):
        in_use = percent(share, decimals=0)
        text = _("%(measured)s tokens/s, %(used)s of what the link carries")
        text %= {"measured": rate_text(rate), "used": in_use}
        cells = tokens_per_s(edge.capacity_tokens_per_s), in_use
        links.append(_Link(_load_colour(share), text, cells))
    vertices = []
    for vertex in graph.drawn():
        share = busiest.get(vertex.whole_title)
        said = f": {percent(share, decimals=0)}" if vertex.layers else ""
        vertices.append((_load_colour(share), f"{vertex.title}{said}"))
    return _chart(
        graph,
        passed,
        links,
        vertices=vertices,
        columns=(_("Carries (tokens/s)"), _("In use")),
        words=LOAD_WORDS,
        summary=_load_summary(graph, used, busiest),
    )


def _passed(graph: PlanGraph, measured: Measured) -> list[float | None]:
    """Tokens/s measured on each edge; None: not known."""
    if measured is None:
        return [None] * len(graph.edges)
    passed = [0.0] * len(graph.edges)
    for ends, rate in measured.items():
        if ends in graph.edge_of:
            passed[graph.edge_of[ends]] += rate
    return [*passed]


def _chart(
    graph: PlanGraph,
    passed: Sequence[float | None],
    links: Sequence[_Link],
    *,
    vertices: Sequence[tuple[str, str]],
    columns: tuple[str, str],
    words: Mapping[str, str],
    summary: str,
) -> Chart:
    """`vertices` are colours and hovers; `words` says what colours mean."""
    return Chart(
        figure=graph.figure(
            labels=[shortened(vertex.title) for vertex in graph.drawn()],
            colours=[colour for colour, _text in vertices],
            texts=[plain(text) for _colour, text in vertices],
            link_colours=[f"{link.colour}99" for link in links],
            link_texts=[link.text for link in links],
        ),
        summary=summary,
        columns=(_("From"), _("To"), _("Measured (tokens/s)"), *columns),
        rows=tuple(
            (*(vertex.whole_title for vertex in graph.ends(edge)), rate_text(rate), *link.cells)
            for edge, rate, link in zip(graph.edges, passed, links, strict=True)
        ),
        legend=tuple(Legend(colour=colour, label=_(label)) for colour, label in words.items()),
    )


def _colour(ratio: float) -> str:
    """Colour of a flow that is `ratio` of the planned one."""
    if ratio < 1 - TOLERANCE:
        return LESS
    return MORE if ratio > 1 + TOLERANCE else AS_PLANNED


def _load_colour(share: float | None) -> str:
    if share is None:
        return NOTHING
    if share < LOADED:
        return IDLE_COLOUR
    return LOADED_COLOUR if share <= FULL else FULL_COLOUR


def _shares_summary(colours: list[str], whole: float | None) -> str:
    if whole is None:
        return _("The flow of this moment is not known.")
    if whole <= 0:
        return _("No token passed in the last minute.")
    return _(
        "%(whole)s tokens/s leave the coordinator; %(off)s of %(count)s "
        "connections carry another share than planned, %(silent)s carried "
        "nothing in the last minute."
    ) % {
        "whole": tokens_per_s(whole),
        "off": sum(colour in (LESS, MORE) for colour in colours),
        "count": len(colours),
        "silent": colours.count(NOTHING),
    }


def _load_summary(
    graph: PlanGraph, used: Sequence[float | None], busiest: Mapping[str, float]
) -> str:
    if not busiest:
        return _("No node is reporting.")
    node = max(busiest, key=lambda name: busiest[name])
    said = {"node": node, "share": percent(busiest[node], decimals=0)}
    known = [(share, -number) for number, share in enumerate(used) if share is not None]
    if not known:
        return _("Busiest node: %(node)s, %(share)s of its time.") % said
    fullest, number = max(known)
    source, target = graph.ends(graph.edges[-number])
    return _(
        "Busiest node: %(node)s, %(share)s of its time. Fullest link: %(source)s → %(target)s, "
        "%(used)s of its rate."
    ) % {
        **said,
        "source": source.whole_title,
        "target": target.whole_title,
        "used": percent(fullest, decimals=0),
    }
