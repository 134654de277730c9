"""The variables of the mixed-integer model (Helix Table 5), and solutions as placements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.capacity import LayerLimits
from planner.domain.cluster import SINK, SOURCE
from planner.domain.flow import Flow
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.placers.solvers.base import MixedIntegerModel

Edge = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementVariables:
    """Table 5, as variable indices. `cond1`, `cond2` are empty without partial inference.

    `holds_first` and `holds_last`, not in the paper either, are 1 where a node holds that layer of
    the model; only for nodes that hold fewer layers then. `level` is not in the paper, and empty
    without a hop limit: h_i + 1 is how many stages a pipeline has at most when it leaves node i.
    """

    first_layer: Mapping[str, int]
    holds: Mapping[str, tuple[int, ...]]
    flow: Mapping[Edge, int]
    valid: Mapping[Edge, int]
    cond1: Mapping[Edge, int]
    cond2: Mapping[Edge, int]
    level: Mapping[str, int]
    holds_first: Mapping[str, int]
    holds_last: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementModel:
    """A model with the meaning of its variables.

    `speeds[i][j-1]` is T_j and `links[u, v]` is S_uv, both in flow units; `limits` are the most
    layers of each node.
    """

    problem: Problem
    flow_unit_tokens_per_s: float
    model: MixedIntegerModel
    variables: PlacementVariables
    speeds: Mapping[str, tuple[float, ...]]
    links: Mapping[Edge, float]
    limits: Mapping[str, LayerLimits]

    @property
    def num_layers(self) -> int:
        return self.problem.model.num_layers

    def placement_of(self, values: Sequence[float]) -> Placement:
        """The placement of an integer solution; its flow variables are not trusted."""
        layers: dict[str, LayerRange] = {}
        for node, column in self.variables.first_layer.items():
            held = self.variables.holds[node]
            count = 1 + max(range(len(held)), key=lambda index: values[held[index]])
            first = round(values[column])
            layers[node] = LayerRange(first=first, end=first + count)
        return Placement(layers=layers)

    def values_of(self, placement: Placement, flow: Flow) -> list[float]:
        """The complete solution that is `placement` with `flow` on it.

        A node that the placement leaves out must hold something here (sum_j b = 1): it gets a layer
        that it can hold and no flow. Every link that carries flow must be in the model.
        """
        values = [0.0] * self.model.num_variables
        for node, column in self.variables.first_layer.items():
            held = placement.layers.get(node) or self._one_layer(node)
            values[column] = held.first
            if node in self.variables.holds_first and held.first == 0:
                values[self.variables.holds_first[node]] = 1.0
            if node in self.variables.holds_last and held.end == self.num_layers:
                values[self.variables.holds_last[node]] = 1.0
            values[self.variables.holds[node][len(held) - 1]] = 1.0
        for edge_flow in flow.edges:
            if edge_flow.flow_tokens_per_s <= 0:
                continue
            edge = (edge_flow.source, edge_flow.target)
            values[self.variables.flow[edge]] = (
                edge_flow.flow_tokens_per_s / self.flow_unit_tokens_per_s
            )
            for switches in (self.variables.valid, self.variables.cond1, self.variables.cond2):
                if edge in switches:
                    values[switches[edge]] = 1.0
        for node, level in _levels(flow).items():
            if node in self.variables.level:
                values[self.variables.level[node]] = level
        return values

    def _one_layer(self, node: str) -> LayerRange:
        held = one_layer(self.limits[node], num_layers=self.num_layers)
        if held is None:
            raise ValueError(f"node {node!r} of the model can hold no layer")
        return held


def one_layer(limits: LayerLimits, *, num_layers: int) -> LayerRange | None:
    """A single layer of the model that a node with these limits can hold; None if there is none."""
    layers = (LayerRange(first=layer, end=layer + 1) for layer in range(num_layers))
    return next((held for held in layers if limits.allow(held, num_layers=num_layers)), None)


def joins_nodes(edge: Edge) -> bool:
    return edge[0] != SOURCE and edge[1] != SINK


def _levels(flow: Flow) -> dict[str, int]:
    """For every node with flow, the most stages that a pipeline of the flow has before it."""
    levels: dict[str, int] = {}
    used = [
        (edge.source, edge.target)
        for edge in flow.edges
        if edge.flow_tokens_per_s > 0 and joins_nodes((edge.source, edge.target))
    ]
    changed = True
    while changed:
        changed = False
        for source, target in used:
            level = levels.get(source, 0) + 1
            if level > levels.get(target, 0):
                levels[target] = level
                changed = True
    return levels
