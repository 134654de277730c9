"""The flow of a plan as a Sankey diagram from coordinator to coordinator, min cut marked.

Columns are steps of pipelines: a node stands right of every node that sends to it. Plotly's own
order within columns crosses links needlessly, so positions are computed here.
"""

from typing import Any

import plotly.graph_objects as go

from helixweb.charts.chart import (
    Chart,
    Legend,
    colours_by_name,
    figure_json,
    plain,
    shortened,
    tokens_per_s,
)
from planner.domain.cluster import SINK, SOURCE
from planner.domain.flow import EdgeFlow, Flow
from planner.domain.plan import Plan
from planner.domain.problem import Problem

NODE_PADDING_PX = 30
PX_PER_NODE_IN_COLUMN = 52
MIN_HEIGHT_PX = 260
# A label beside its node needs this much; a diagram with more columns than fit scrolls sideways.
PX_PER_COLUMN = 82
COLUMNS_THAT_FIT = 11
_END_LABEL = "coordinator"
# Plotly ignores a position of exactly 0 or 1.
_EDGE_MARGIN = 0.001


def flow_diagram(problem: Problem, plan: Plan) -> Chart:
    """Links as wide as their flow, nodes coloured by GPU; what limits the flow is red and named."""
    used = [edge for edge in plan.flow.edges if edge.flow_tokens_per_s > 0]
    columns = _columns(plan, used)
    height = MIN_HEIGHT_PX + PX_PER_NODE_IN_COLUMN * max(0, max(map(len, columns)) - 5)
    positions = _positions(columns, plan.flow, height=height)
    names = [name for column in columns for name in column]
    number_of = {name: number for number, name in enumerate(names)}
    colours = colours_by_name([profile.gpu for profile in problem.compute_profiles.values()])
    cut_nodes, cut_edges = set(plan.flow.min_cut.nodes), set(plan.flow.min_cut.edges)
    trace = go.Sankey(
        arrangement="fixed",
        textfont={"color": "var(--text)", "size": 11},
        node={
            "label": [_label(plan, name, in_cut=name in cut_nodes) for name in names],
            "color": [_colour(problem, name, colours, in_cut=name in cut_nodes) for name in names],
            "line": {"width": 0},
            "x": [positions[name][0] for name in names],
            "y": [positions[name][1] for name in names],
            "pad": NODE_PADDING_PX,
            "thickness": 14,
            "customdata": [_node_text(problem, plan, name) for name in names],
            "hovertemplate": "%{customdata}<extra></extra>",
        },
        link={
            "source": [number_of[edge.source] for edge in used],
            "target": [number_of[edge.target] for edge in used],
            "value": [edge.flow_tokens_per_s for edge in used],
            "color": [
                "var(--bad)" if (edge.source, edge.target) in cut_edges else "var(--flow)"
                for edge in used
            ],
            "customdata": [
                _edge_text(edge, in_cut=(edge.source, edge.target) in cut_edges) for edge in used
            ],
            "hovertemplate": "%{customdata}<extra></extra>",
        },
    )
    gpus = sorted({problem.profile_of(name).gpu for name in plan.placement.layers})
    layout: dict[str, Any] = {"height": height, "margin": {"l": 8, "r": 8, "t": 20, "b": 20}}
    if len(columns) > COLUMNS_THAT_FIT:
        layout["width"] = PX_PER_COLUMN * len(columns)
    return Chart(
        figure=figure_json([trace], layout),
        summary=_summary(plan, used),
        columns=("From", "To", "Flow (tokens/s)", "Capacity (tokens/s)", "Limits"),
        rows=tuple(
            (
                _shown(edge.source),
                _shown(edge.target),
                tokens_per_s(edge.flow_tokens_per_s),
                tokens_per_s(edge.capacity_tokens_per_s),
                "min cut" if (edge.source, edge.target) in cut_edges else "",
            )
            for edge in sorted(used, key=lambda edge: -edge.flow_tokens_per_s)
        ),
        legend=tuple(Legend(colour=colours[gpu], label=gpu) for gpu in gpus),
    )


def _columns(plan: Plan, used: list[EdgeFlow]) -> list[list[str]]:
    """Names by number of steps from the source along the longest used way; the sink is last."""
    step = {SOURCE: 0}
    by_first_layer = sorted(
        {end for edge in used for end in (edge.source, edge.target)} - {SOURCE, SINK},
        key=lambda name: (plan.placement.layers[name].end, name),
    )
    # A used link leads to a node that holds later layers, so this order is topological.
    for name in by_first_layer:
        step[name] = 1 + max(step[edge.source] for edge in used if edge.target == name)
    columns: list[list[str]] = [[] for _ in range(max(step.values(), default=0) + 2)]
    for name, number in step.items():
        columns[number].append(name)
    columns[-1].append(SINK)
    return columns


def _positions(
    columns: list[list[str]], flow: Flow, *, height: float
) -> dict[str, tuple[float, float]]:
    """Centre of every node, 0 to 1; within a column ordered by where its flow comes from."""
    tallest = max(sum(_through(flow, name) for name in column) for column in columns if column)
    most = max(len(column) for column in columns)
    share = (1 - NODE_PADDING_PX * (most - 1) / height) / tallest if tallest > 0 else 0.0
    padding = NODE_PADDING_PX / height
    positions: dict[str, tuple[float, float]] = {}
    for number, column in enumerate(columns):
        x = _within(number / max(1, len(columns) - 1))
        ordered = sorted(column, key=lambda name: (_centre_of_senders(flow, name, positions), name))
        taken = sum(_through(flow, name) * share for name in column)
        taken += padding * (len(column) - 1)
        top = (1 - taken) / 2
        for name in ordered:
            size = _through(flow, name) * share
            positions[name] = (x, _within(top + size / 2))
            top += size + padding
    return positions


def _within(position: float) -> float:
    return min(max(position, _EDGE_MARGIN), 1 - _EDGE_MARGIN)


def _through(flow: Flow, name: str) -> float:
    if name in (SOURCE, SINK):
        return flow.value_tokens_per_s
    return flow.nodes[name].flow_tokens_per_s


def _centre_of_senders(flow: Flow, name: str, positions: dict[str, tuple[float, float]]) -> float:
    """Flow-weighted mean height of the nodes that send to `name`."""
    senders = [
        (positions[edge.source][1], edge.flow_tokens_per_s)
        for edge in flow.edges
        if edge.target == name and edge.flow_tokens_per_s > 0 and edge.source in positions
    ]
    total = sum(weight for _, weight in senders)
    return sum(y * weight for y, weight in senders) / total if total > 0 else 0.5


def _colour(problem: Problem, name: str, colours: dict[str, str], *, in_cut: bool) -> str:
    if name in (SOURCE, SINK):
        return "var(--muted)"
    return "var(--bad)" if in_cut else colours[problem.profile_of(name).gpu]


def _label(plan: Plan, name: str, *, in_cut: bool) -> str:
    if name in (SOURCE, SINK):
        return _END_LABEL
    return f"{shortened(name)}<br>{plan.placement.layers[name]}" + ("<br>min cut" if in_cut else "")


def _shown(name: str) -> str:
    return _END_LABEL if name in (SOURCE, SINK) else name


def _node_text(problem: Problem, plan: Plan, name: str) -> str:
    if name in (SOURCE, SINK):
        return f"{_END_LABEL}: {tokens_per_s(plan.flow.value_tokens_per_s)} tokens/s"
    node = plan.flow.nodes[name]
    text = (
        f"{plain(name)} ({plain(problem.profile_of(name).gpu)}), "
        f"layers {plan.placement.layers[name]}<br>"
        f"{tokens_per_s(node.flow_tokens_per_s)} of "
        f"{tokens_per_s(node.capacity_tokens_per_s)} tokens/s"
    )
    return text + ("<br>min cut: compute limits here" if name in plan.flow.min_cut.nodes else "")


def _edge_text(edge: EdgeFlow, *, in_cut: bool) -> str:
    text = (
        f"{plain(_shown(edge.source))} → {plain(_shown(edge.target))}<br>"
        f"{tokens_per_s(edge.flow_tokens_per_s)} of "
        f"{tokens_per_s(edge.capacity_tokens_per_s)} tokens/s"
    )
    return text + ("<br>min cut: the link limits here" if in_cut else "")


def _summary(plan: Plan, used: list[EdgeFlow]) -> str:
    carrying = {edge.source for edge in used} | {edge.target for edge in used}
    nodes = len(carrying - {SOURCE, SINK})
    idle = len(plan.placement.layers) - nodes
    text = (
        f"{tokens_per_s(plan.flow.value_tokens_per_s)} tokens/s flow through {nodes} nodes "
        f"over {len(used)} connections, {plan.hops:.1f} stages a request on average"
    )
    return text + (f"; {idle} nodes hold layers but carry no flow." if idle else ".")
