"""The flow of a plan as a Sankey diagram from coordinator to coordinator, min cut marked."""

from collections.abc import Mapping

from helixweb.charts.chart import (
    Chart,
    Legend,
    colours_by_name,
    of_capacity,
    plain,
    shortened,
    tokens_per_s,
)
from helixweb.charts.plan_graph import PlanGraph, Vertex
from helixweb.words import gettext as _
from planner import Plan, Problem

NAMES_SHOWN = 8


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
            colours=[_colour(vertex, colours) for vertex in drawn],
            texts=[_vertex_text(vertex) for vertex in drawn],
            link_colours=["var(--bad)" if edge.in_cut else "var(--flow)" for edge in graph.edges],
            link_texts=[of_capacity(edge) + limits * edge.in_cut for edge in graph.edges],
        ),
        summary=_summary(graph),
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


def _colour(vertex: Vertex, colours: Mapping[str, str]) -> str:
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


def _summary(graph: PlanGraph) -> str:
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
