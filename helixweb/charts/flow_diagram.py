"""The flow of a plan as a Sankey diagram from coordinator to coordinator, min cut marked.

Columns are steps of pipelines: a node stands right of every node that sends to it. Plotly's own
order within columns crosses links needlessly, so positions are computed here.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from helixweb.charts.chart import (
    Chart,
    Legend,
    colours_by_name,
    figure_json,
    plain,
    shortened,
    tokens_per_s,
    trace,
)
from helixweb.words import gettext as _
from helixweb.words import gettext_noop
from planner.domain.cluster import SINK, SOURCE
from planner.domain.flow import EdgeFlow
from planner.domain.plan import Plan
from planner.domain.problem import Problem

NODE_PADDING_PX = 30
PX_PER_NODE_IN_COLUMN = 52
MIN_HEIGHT_PX = 260
# A label beside its node needs this much; a diagram with more columns than fit scrolls sideways.
PX_PER_COLUMN = 82
COLUMNS_THAT_FIT = 11
# From this many nodes on a diagram of every one of them says less than one of their layers.
GROUPED_FROM = 64
NAMES_SHOWN = 8
_END_LABEL = gettext_noop("coordinator")
# Plotly ignores a position of exactly 0 or 1.
_EDGE_MARGIN = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class _Vertex:
    """A node of the diagram: one of the plan's, or several that hold the same layers alike.

    `end` is the last layer's successor, by which vertices stand in order; `names` who it is.
    """

    names: tuple[str, ...]
    gpu: str
    layers: str
    end: float
    flow_tokens_per_s: float
    capacity_tokens_per_s: float
    in_cut: int

    @property
    def title(self) -> str:
        return self.names[0] if len(self.names) == 1 else f"{len(self.names)} x {self.gpu}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edge:
    """A link of the diagram, by the keys of its ends."""

    source: str
    target: str
    flow_tokens_per_s: float
    capacity_tokens_per_s: float
    in_cut: bool


def flow_diagram(problem: Problem, plan: Plan) -> Chart:
    """Links as wide as their flow, nodes coloured by GPU; what limits the flow is red and named.

    From `GROUPED_FROM` nodes on those with the same layers and GPU are drawn as one.
    """
    used = [edge for edge in plan.flow.edges if edge.flow_tokens_per_s > 0]
    key_of = _keys(problem, plan)
    vertices = _vertices(problem, plan, key_of)
    edges = _edges(used, plan, key_of)
    columns = _columns(vertices, edges)
    height = MIN_HEIGHT_PX + PX_PER_NODE_IN_COLUMN * max(0, max(map(len, columns)) - 5)
    positions = _positions(columns, vertices, edges, height=height)
    keys = [key for column in columns for key in column]
    number_of = {key: number for number, key in enumerate(keys)}
    colours = colours_by_name([profile.gpu for profile in problem.compute_profiles.values()])
    sankey = trace(
        "sankey",
        arrangement="fixed",
        textfont={"color": "var(--text)", "size": 11},
        node={
            "label": [_label(vertices[key]) for key in keys],
            "color": [_colour(vertices[key], colours) for key in keys],
            "line": {"width": 0},
            "x": [positions[key][0] for key in keys],
            "y": [positions[key][1] for key in keys],
            "pad": NODE_PADDING_PX,
            "thickness": 14,
            "customdata": [_vertex_text(vertices[key]) for key in keys],
            "hovertemplate": "%{customdata}<extra></extra>",
        },
        link={
            "source": [number_of[edge.source] for edge in edges],
            "target": [number_of[edge.target] for edge in edges],
            "value": [edge.flow_tokens_per_s for edge in edges],
            "color": ["var(--bad)" if edge.in_cut else "var(--flow)" for edge in edges],
            "customdata": [_edge_text(edge, vertices) for edge in edges],
            "hovertemplate": "%{customdata}<extra></extra>",
        },
    )
    gpus = sorted({problem.profile_of(name).gpu for name in plan.placement.layers})
    layout: dict[str, Any] = {"height": height, "margin": {"l": 8, "r": 8, "t": 20, "b": 20}}
    if len(columns) > COLUMNS_THAT_FIT:
        layout["width"] = PX_PER_COLUMN * len(columns)
    return Chart(
        figure=figure_json([sankey], layout),
        summary=_summary(plan, used, grouped=len(vertices) - 2 < len(plan.placement.layers)),
        columns=(_("From"), _("To"), _("Flow (tokens/s)"), _("Capacity (tokens/s)"), _("Limits")),
        rows=tuple(
            (
                _row_title(vertices[edge.source]),
                _row_title(vertices[edge.target]),
                tokens_per_s(edge.flow_tokens_per_s),
                tokens_per_s(edge.capacity_tokens_per_s),
                _("min cut") if edge.in_cut else "",
            )
            for edge in sorted(edges, key=lambda edge: -edge.flow_tokens_per_s)
        ),
        legend=tuple(Legend(colour=colours[gpu], label=gpu) for gpu in gpus),
    )


def _keys(problem: Problem, plan: Plan) -> dict[str, str]:
    """Node name -> the vertex it is part of: itself, or those that hold the same layers alike."""
    if len(plan.placement.layers) < GROUPED_FROM:
        return {name: name for name in plan.placement.layers}
    return {
        name: f"{layers} {problem.profile_of(name).gpu} {plan.placement.component_of(name)}"
        for name, layers in plan.placement.layers.items()
    }


def _vertices(problem: Problem, plan: Plan, key_of: Mapping[str, str]) -> dict[str, _Vertex]:
    members: dict[str, list[str]] = defaultdict(list)
    for name, key in key_of.items():
        members[key].append(name)
    cut, value = set(plan.flow.min_cut.nodes), plan.flow.value_tokens_per_s
    vertices = {
        end: _Vertex(
            names=(_(_END_LABEL),),
            gpu="",
            layers="",
            end=place,
            flow_tokens_per_s=value,
            capacity_tokens_per_s=value,
            in_cut=0,
        )
        for end, place in ((SOURCE, -math.inf), (SINK, math.inf))
    }
    for key, names in members.items():
        flows = [plan.flow.nodes[name] for name in names]
        layers = plan.placement.layers[names[0]]
        vertices[key] = _Vertex(
            names=tuple(names),
            gpu=problem.profile_of(names[0]).gpu,
            layers=str(layers),
            end=layers.end,
            flow_tokens_per_s=sum(flow.flow_tokens_per_s for flow in flows),
            capacity_tokens_per_s=sum(flow.capacity_tokens_per_s for flow in flows),
            in_cut=sum(name in cut for name in names),
        )
    return vertices


def _edges(used: Iterable[EdgeFlow], plan: Plan, key_of: Mapping[str, str]) -> list[_Edge]:
    """Of links between the same two vertices the sum, those of the cut apart."""
    cut = set(plan.flow.min_cut.edges)
    together: dict[tuple[str, str, bool], list[EdgeFlow]] = defaultdict(list)
    for edge in used:
        ends = key_of.get(edge.source, edge.source), key_of.get(edge.target, edge.target)
        together[*ends, (edge.source, edge.target) in cut].append(edge)
    return [
        _Edge(
            source=source,
            target=target,
            flow_tokens_per_s=sum(edge.flow_tokens_per_s for edge in edges),
            capacity_tokens_per_s=sum(edge.capacity_tokens_per_s for edge in edges),
            in_cut=in_cut,
        )
        for (source, target, in_cut), edges in together.items()
    ]


def _columns(vertices: Mapping[str, _Vertex], edges: list[_Edge]) -> list[list[str]]:
    """Keys by number of steps from the source along the longest used way; the sink is last."""
    step = {SOURCE: 0}
    senders: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        senders[edge.target].append(edge.source)
    between = {end for edge in edges for end in (edge.source, edge.target)} - {SOURCE, SINK}
    # A used link leads to a node that holds later layers, so this order is topological.
    for key in sorted(between, key=lambda key: (vertices[key].end, key)):
        step[key] = 1 + max(step[source] for source in senders[key])
    columns: list[list[str]] = [[] for _ in range(max(step.values(), default=0) + 2)]
    for key, number in step.items():
        columns[number].append(key)
    columns[-1].append(SINK)
    return columns


def _positions(
    columns: list[list[str]],
    vertices: Mapping[str, _Vertex],
    edges: list[_Edge],
    *,
    height: float,
) -> dict[str, tuple[float, float]]:
    """Centre of every vertex, 0 to 1; within a column ordered by where its flow comes from."""
    through = {key: vertex.flow_tokens_per_s for key, vertex in vertices.items()}
    incoming: dict[str, list[_Edge]] = defaultdict(list)
    for edge in edges:
        incoming[edge.target].append(edge)
    tallest = max(sum(through[key] for key in column) for column in columns if column)
    most = max(len(column) for column in columns)
    share = (1 - NODE_PADDING_PX * (most - 1) / height) / tallest if tallest > 0 else 0.0
    padding = NODE_PADDING_PX / height
    positions: dict[str, tuple[float, float]] = {}
    for number, column in enumerate(columns):
        x = _within(number / max(1, len(columns) - 1))
        ordered = sorted(
            column, key=lambda key: (_centre_of_senders(incoming[key], positions), key)
        )
        taken = sum(through[key] * share for key in column)
        taken += padding * (len(column) - 1)
        top = (1 - taken) / 2
        for key in ordered:
            size = through[key] * share
            positions[key] = (x, _within(top + size / 2))
            top += size + padding
    return positions


def _within(position: float) -> float:
    return min(max(position, _EDGE_MARGIN), 1 - _EDGE_MARGIN)


def _centre_of_senders(
    incoming: Iterable[_Edge], positions: Mapping[str, tuple[float, float]]
) -> float:
    """Flow-weighted mean height of the vertices that send."""
    senders = [
        (positions[edge.source][1], edge.flow_tokens_per_s)
        for edge in incoming
        if edge.source in positions
    ]
    total = sum(weight for _, weight in senders)
    return sum(y * weight for y, weight in senders) / total if total > 0 else 0.5


def _colour(vertex: _Vertex, colours: Mapping[str, str]) -> str:
    if not vertex.layers:
        return "var(--muted)"
    return "var(--bad)" if vertex.in_cut else colours[vertex.gpu]


def _label(vertex: _Vertex) -> str:
    if not vertex.layers:
        return _(_END_LABEL)
    cut = f"<br>{_cut_words(vertex)}" if vertex.in_cut else ""
    return f"{shortened(vertex.title)}<br>{vertex.layers}{cut}"


def _cut_words(vertex: _Vertex) -> str:
    """All of it limits, or only some of many."""
    if vertex.in_cut == len(vertex.names):
        return _("min cut")
    return _("min cut: %(in_cut)s") % {"in_cut": vertex.in_cut}


def _row_title(vertex: _Vertex) -> str:
    grouped = len(vertex.names) > 1
    return f"{vertex.title} {vertex.layers}" if grouped else vertex.title


def _vertex_text(vertex: _Vertex) -> str:
    if not vertex.layers:
        return f"{_(_END_LABEL)}: {tokens_per_s(vertex.flow_tokens_per_s)} tokens/s"
    grouped = len(vertex.names) > 1
    who = plain(vertex.title) if grouped else f"{plain(vertex.title)} ({plain(vertex.gpu)})"
    text = (
        _("%(who)s, layers %(layers)s") % {"who": who, "layers": vertex.layers}
        + "<br>"
        + _of_capacity(vertex)
    )
    if grouped:
        more = ", …" if len(vertex.names) > NAMES_SHOWN else ""
        text += f"<br>{', '.join(plain(name) for name in vertex.names[:NAMES_SHOWN])}{more}"
    return text + (
        f"<br>{_cut_words(vertex)}: " + _("compute limits here") if vertex.in_cut else ""
    )


def _edge_text(edge: _Edge, vertices: Mapping[str, _Vertex]) -> str:
    source, target = vertices[edge.source], vertices[edge.target]
    text = f"{plain(source.title)} → {plain(target.title)}<br>{_of_capacity(edge)}"
    return text + ("<br>" + _("min cut: the link limits here") if edge.in_cut else "")


def _of_capacity(part: _Vertex | _Edge) -> str:
    return _("%(flow)s of %(capacity)s tokens/s") % {
        "flow": tokens_per_s(part.flow_tokens_per_s),
        "capacity": tokens_per_s(part.capacity_tokens_per_s),
    }


def _summary(plan: Plan, used: list[EdgeFlow], *, grouped: bool) -> str:
    carrying = {edge.source for edge in used} | {edge.target for edge in used}
    nodes = len(carrying - {SOURCE, SINK})
    idle = len(plan.placement.layers) - nodes
    text = _(
        "%(flow)s tokens/s flow through %(nodes)s nodes over "
        "%(count)s connections, %(hops)s stages a request on average"
    ) % {
        "flow": tokens_per_s(plan.flow.value_tokens_per_s),
        "nodes": nodes,
        "count": len(used),
        "hops": f"{plan.hops:.1f}",
    }
    if grouped:
        text += _("; nodes with the same layers and GPU are drawn as one")
    return text + (
        _("; %(idle)s nodes hold layers but carry no flow.") % {"idle": idle} if idle else _(".")
    )
