"""A plan's flow as the graph that its diagrams draw, from coordinator to coordinator.

Columns are steps of pipelines: a node is to the right of every node that sends to it. Plotly's
own order within columns crosses links needlessly, so positions are computed here.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from helixweb.charts.chart import figure_json, plain, trace
from helixweb.words import gettext as _
from planner import SINK, SOURCE, EdgeFlow, Plan, Problem

NODE_PADDING_PX = 30
PX_PER_NODE_IN_COLUMN = 52
MIN_HEIGHT_PX = 260
# A label beside its node needs this much; a diagram with more columns than fit scrolls sideways.
PX_PER_COLUMN = 82
COLUMNS_THAT_FIT = 11
# From this many nodes on a diagram of every one of them says less than one of their layers.
GROUPED_FROM = 64
# Plotly ignores a position of exactly 0 or 1.
_EDGE_MARGIN = 0.001

Ends = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vertex:
    """A node of the diagram: one of the plan's, or several that hold the same layers alike; the
    coordinator has no layers. `end` is the last layer's successor, by which vertices are ordered.
    """

    names: tuple[str, ...]
    gpu: str
    layers: str
    end: float
    flow_tokens_per_s: float
    capacity_tokens_per_s: float
    in_cut: int

    @property
    def is_group(self) -> bool:
        return len(self.names) > 1

    @property
    def title(self) -> str:
        return f"{len(self.names)} x {self.gpu}" if self.is_group else self.names[0]

    @property
    def whole_title(self) -> str:
        """Unlike that of any other vertex."""
        return f"{self.title} {self.layers}" if self.is_group else self.title


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A link of the diagram, by the keys of its ends."""

    source: str
    target: str
    flow_tokens_per_s: float
    capacity_tokens_per_s: float
    in_cut: bool


class PlanGraph:
    """A plan's graph. From `GROUPED_FROM` nodes on, those with equal layers and GPU are one vertex.

    Links between the same two vertices are one edge, the widest first; those `apart` are another.
    `edge_of` has the number of its edge for each connection that carries planned flow.
    """

    def __init__(self, problem: Problem, plan: Plan, *, apart: Collection[Ends] = ()) -> None:
        self.plan = plan
        self.key_of = _keys(problem, plan)
        self.vertices = _vertices(problem, plan, self.key_of)
        together: dict[tuple[str, str, bool], list[EdgeFlow]] = defaultdict(list)
        for each in plan.flow.edges:
            if each.flow_tokens_per_s > 0:
                ends = self.key_of[each.source], self.key_of[each.target]
                together[*ends, (each.source, each.target) in apart].append(each)
        edges = [
            (
                Edge(
                    source=source,
                    target=target,
                    flow_tokens_per_s=sum(each.flow_tokens_per_s for each in flows),
                    capacity_tokens_per_s=sum(each.capacity_tokens_per_s for each in flows),
                    in_cut=in_cut,
                ),
                flows,
            )
            for (source, target, in_cut), flows in together.items()
        ]
        edges.sort(key=lambda edge: -edge[0].flow_tokens_per_s)
        self.edges = [edge for edge, _flows in edges]
        self.edge_of = {
            (each.source, each.target): number
            for number, (_edge, flows) in enumerate(edges)
            for each in flows
        }

    @property
    def is_grouped(self) -> bool:
        return len(self.vertices) - 2 < len(self.plan.placement.layers)

    @cached_property
    def columns(self) -> list[list[str]]:
        """Keys by number of steps from the source along the longest used way; the sink is last."""
        step = {SOURCE: 0}
        senders: dict[str, list[str]] = defaultdict(list)
        for edge in self.edges:
            senders[edge.target].append(edge.source)
        between = {end for edge in self.edges for end in (edge.source, edge.target)}
        # A used link leads to a node that holds later layers, so this order is topological.
        for key in sorted(between - {SOURCE, SINK}, key=lambda key: (self.vertices[key].end, key)):
            step[key] = 1 + max(step[source] for source in senders[key])
        columns: list[list[str]] = [[] for _ in range(max(step.values(), default=0) + 2)]
        for key, number in step.items():
            columns[number].append(key)
        columns[-1].append(SINK)
        return columns

    def drawn(self) -> list[Vertex]:
        """The vertices in the order of the lists that `figure` takes."""
        return [self.vertices[key] for column in self.columns for key in column]

    def figure(
        self,
        *,
        labels: Sequence[str],
        colours: Sequence[str],
        texts: Sequence[str],
        link_colours: Sequence[str],
        link_texts: Sequence[str],
    ) -> dict[str, Any]:
        """Figure of `drawn` vertices, and of edges by the names of their ends; texts are hovers."""
        positions = self._positions
        keys = [key for column in self.columns for key in column]
        number_of = {key: number for number, key in enumerate(keys)}
        sankey = trace(
            "sankey",
            arrangement="fixed",
            textfont={"color": "var(--text)", "size": 11},
            node={
                "label": list(labels),
                "color": list(colours),
                "line": {"width": 0},
                "x": [positions[key][0] for key in keys],
                "y": [positions[key][1] for key in keys],
                "pad": NODE_PADDING_PX,
                "thickness": 14,
                "customdata": list(texts),
                "hovertemplate": "%{customdata}<extra></extra>",
            },
            link={
                "source": [number_of[edge.source] for edge in self.edges],
                "target": [number_of[edge.target] for edge in self.edges],
                "value": [edge.flow_tokens_per_s for edge in self.edges],
                "color": list(link_colours),
                "customdata": [
                    " → ".join(plain(vertex.title) for vertex in self.ends(edge)) + f"<br>{text}"
                    for edge, text in zip(self.edges, link_texts, strict=True)
                ],
                "hovertemplate": "%{customdata}<extra></extra>",
            },
        )
        layout: dict[str, Any] = {
            "height": self._height_px,
            "margin": {"l": 8, "r": 8, "t": 20, "b": 20},
        }
        if len(self.columns) > COLUMNS_THAT_FIT:
            layout["width"] = PX_PER_COLUMN * len(self.columns)
        return figure_json([sankey], layout)

    def ends(self, edge: Edge) -> tuple[Vertex, Vertex]:
        return self.vertices[edge.source], self.vertices[edge.target]

    @cached_property
    def _positions(self) -> dict[str, tuple[float, float]]:
        return _positions(self.columns, self.vertices, self.edges, height=self._height_px)

    @property
    def _height_px(self) -> int:
        return MIN_HEIGHT_PX + PX_PER_NODE_IN_COLUMN * max(0, max(map(len, self.columns)) - 5)


def _keys(problem: Problem, plan: Plan) -> dict[str, str]:
    """Node name -> the vertex it is part of: itself, or those that hold the same layers alike."""
    placement, ends = plan.placement, {SOURCE: SOURCE, SINK: SINK}
    if len(placement.layers) < GROUPED_FROM:
        return {name: name for name in placement.layers} | ends
    return {
        name: f"{layers} {problem.profile_of(name).gpu} {placement.component_of(name)}"
        for name, layers in placement.layers.items()
    } | ends


def _vertices(problem: Problem, plan: Plan, key_of: Mapping[str, str]) -> dict[str, Vertex]:
    value = plan.flow.value_tokens_per_s
    vertices = {
        end: Vertex(
            names=(_("coordinator"),),
            gpu="",
            layers="",
            end=place,
            flow_tokens_per_s=value,
            capacity_tokens_per_s=value,
            in_cut=0,
        )
        for end, place in ((SOURCE, -math.inf), (SINK, math.inf))
    }
    members: dict[str, list[str]] = defaultdict(list)
    for name in plan.placement.layers:
        members[key_of[name]].append(name)
    cut = set(plan.flow.min_cut.nodes)
    for key, names in members.items():
        flows = [plan.flow.nodes[name] for name in names]
        layers = plan.placement.layers[names[0]]
        vertices[key] = Vertex(
            names=tuple(names),
            gpu=problem.profile_of(names[0]).gpu,
            layers=str(layers),
            end=layers.end,
            flow_tokens_per_s=sum(flow.flow_tokens_per_s for flow in flows),
            capacity_tokens_per_s=sum(flow.capacity_tokens_per_s for flow in flows),
            in_cut=len(cut.intersection(names)),
        )
    return vertices


def _positions(
    columns: list[list[str]],
    vertices: Mapping[str, Vertex],
    edges: list[Edge],
    *,
    height: float,
) -> dict[str, tuple[float, float]]:
    """Centre of every vertex, 0 to 1; within a column ordered by where its flow comes from."""
    through = {key: vertex.flow_tokens_per_s for key, vertex in vertices.items()}
    incoming: dict[str, list[Edge]] = defaultdict(list)
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
    incoming: Iterable[Edge], positions: Mapping[str, tuple[float, float]]
) -> float:
    """Flow-weighted mean height of the vertices that send."""
    senders = [
        (positions[edge.source][1], edge.flow_tokens_per_s)
        for edge in incoming
        if edge.source in positions
    ]
    total = sum(weight for _, weight in senders)
    return sum(y * weight for y, weight in senders) / total if total > 0 else 0.5
