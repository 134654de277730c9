"""A component of a plan as the fixed point sees it: shares of requests on nodes and connections."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from planner.domain.cluster import COORDINATOR, SINK, SOURCE
from planner.domain.errors import InvalidPlacement
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.domain.serving_policy import ServingPolicy
from planner.estimate.lengths import LengthStatistics
from planner.estimate.model import Model
from planner.estimate.shared import Links, Numbers, Reals
from planner.native import I64, INTEGERS, POINTER, REALS, Packed, function
from planner.timing import hop_s, layer_times_of

OUTSIDE = -1
TABLE_SIZE = 1025
_UNLIMITED = 1e18


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Decode seconds of a layer for 0 .. TABLE_SIZE - 1 sequences, one row per profile."""

    decode_s_KB: Reals
    slope_s_K: Reals


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """N nodes, E connections; OUTSIDE is the coordinator.

    `share` of the component's requests, `layers` that one of them runs there on average, `step_s`
    that a layer takes for a prompt step, `room` in requests, `decode_limit` in sequences per step.
    Nodes of one `group` hold the same layers, so one that is full leaves its share to the others;
    they have consecutive numbers. At X tokens/s others take a share of X times `crowding_E` of a
    connection's `bandwidth_E`. A new token needs `return_s` on average from the last stage to the
    first.
    """

    group_N: Numbers
    table_N: Numbers
    share_N: Reals
    layers_N: Reals
    step_s_N: Reals
    room_N: Reals
    decode_limit_N: Reals
    tail_E: Numbers
    head_E: Numbers
    share_E: Reals
    bandwidth_E: Reals
    latency_E: Reals
    crowding_E: Reals
    return_s: float

    def packed(self, tables: Tables) -> Packed:
        """As C's `Load`, which may fill the arrays of connections."""
        return Packed(
            nodes=len(self.share_N),
            edges=len(self.share_E),
            table_size=tables.decode_s_KB.shape[1],
            group=self.group_N,
            table=self.table_N,
            tails=self.tail_E,
            heads=self.head_E,
            share=self.share_N,
            layers=self.layers_N,
            step_s=self.step_s_N,
            room=self.room_N,
            decode_limit=self.decode_limit_N,
            edge_share=self.share_E,
            bandwidth=self.bandwidth_E,
            latency=self.latency_E,
            crowding=self.crowding_E,
            decode_s=tables.decode_s_KB,
            decode_slope=tables.slope_s_K,
            return_s=self.return_s,
        )


class NodeFigures:
    """Values from the profiles of one problem, read once for the loads of many placements."""

    def __init__(
        self,
        problem: Problem,
        *,
        policy: ServingPolicy,
        lengths: LengthStatistics,
        model: Model,
    ) -> None:
        self.problem = problem
        self.model = model
        names = [node.name for node in problem.cluster.nodes]
        self.end_of = {name: number for number, name in enumerate([*names, COORDINATOR])}
        self.links = Links(problem, names)
        linked = {end for link in problem.cluster.links for end in (link.source, link.target)}
        # Nodes that all links treat alike: by region and hop, unless a link names one.
        self.likeness = {
            name: name
            if name in linked or name == COORDINATOR
            else f"{hop_s(problem, name)} {problem.cluster.region_of(name)}"
            for name in self.end_of
        }
        self._policy = policy
        self._lengths = lengths
        used = {node.name: problem.profile_of(node.name).name for node in problem.cluster.nodes}
        example = {profile: name for name, profile in used.items()}
        numbers = {profile: number for number, profile in enumerate(example)}
        self.table_of = {name: numbers[profile] for name, profile in used.items()}
        # A table is of a kind of node, whatever it holds: as with the most layers that it can, and
        # without the model's head, which every request meets once wherever it is.
        times = [
            layer_times_of(problem, name).held(
                max(1, problem.profile_of(name).max_layers), has_head=False
            )
            for name in example.values()
        ]
        self._step_s = [time.prompt_s(model.step_tokens) for time in times]
        decode_s = np.array(
            [[time.decode_s(batch) for batch in range(TABLE_SIZE)] for time in times]
        )
        self.tables = Tables(
            decode_s_KB=decode_s, slope_s_K=np.array(decode_s[:, -1] - decode_s[:, -2])
        )

    def step_s(self, node: str) -> float:
        """Seconds a layer takes for a prompt step."""
        return self._step_s[self.table_of[node]]

    def room(self, node: str, *, held: int, layers: float, ends: tuple[bool, bool]) -> float:
        """Requests that fit below the high-water mark, each running `layers` of the `held`.

        `ends`: whether the first and the last layer of the model are among those held.
        """
        kv = self.problem.profile_of(node).kv_room_token_layers(
            held, has_first=ends[0], has_last=ends[1]
        )
        return self._policy.kv_high_water * kv / (layers * self._lengths.reserved_tokens)

    def decode_limit(self, node: str, *, held: int) -> float:
        limits = self.problem.profile_of(node).batch_limits
        if not self._policy.published_batch_limits or limits is None:
            return _UNLIMITED
        return float(limits.decode_max_tokens[held - 1])


Spread: TypeAlias = Mapping[tuple[str, str], float]
"""(source, target) -> what flows there, SOURCE to SINK; only ratios matter"""


def loads_of(figures: NodeFigures, placement: Placement, spread: Spread) -> tuple[Load, ...]:
    """One load for each component that has flow."""
    component_of = {
        name: number for number, component in enumerate(placement.components) for name in component
    }
    sides: dict[int, dict[tuple[str, str], float]] = {}
    for (source, target), flow in spread.items():
        if flow > 0:
            inner = target if source == SOURCE else source
            sides.setdefault(component_of.get(inner, 0), {})[source, target] = flow
    return tuple(
        _load(figures, placement, flows)
        for number in sorted(sides)
        for flows in _apart(sides[number])
    )


def _apart(
    flows: Mapping[tuple[str, str], float],
) -> list[dict[tuple[str, str], float]]:
    """The parts of a flow that share no node; when one is full the others still fill."""
    leader: dict[str, str] = {}

    def leader_of(name: str) -> str:
        while leader.setdefault(name, name) != name:
            leader[name] = name = leader[leader[name]]
        return name

    for source, target in flows:
        if source != SOURCE and target != SINK:
            leader[leader_of(source)] = leader_of(target)
    parts: dict[str, dict[tuple[str, str], float]] = {}
    for (source, target), flow in sorted(flows.items()):
        part = parts.setdefault(leader_of(target if source == SOURCE else source), {})
        part[source, target] = flow
    return list(parts.values())


def _load(figures: NodeFigures, placement: Placement, flows: Spread) -> Load:
    whole = math.fsum(flow for (source, _), flow in flows.items() if source == SOURCE)
    through: dict[str, float] = {}
    run: dict[str, float] = {}
    for (source, target), flow in sorted(flows.items()):
        if target == SINK:
            continue
        position = 0 if source == SOURCE else placement.layers[source].end
        through[target] = through.get(target, 0.0) + flow
        run[target] = run.get(target, 0.0) + flow * (placement.layers[target].end - position)
    names = sorted(
        through, key=lambda name: (placement.layers[name].first, placement.layers[name].end, name)
    )
    number_of = {name: number for number, name in enumerate(names)}
    ranges = [(placement.layers[name].first, placement.layers[name].end) for name in names]
    groups = {held: number for number, held in enumerate(dict.fromkeys(ranges))}
    layers = [run[name] / through[name] for name in names]
    held = [len(placement.layers[name]) for name in names]
    ends = sorted(flows)
    load = Load(
        group_N=np.array([groups[pair] for pair in ranges], dtype=np.int64),
        table_N=np.array([figures.table_of[name] for name in names], dtype=np.int64),
        share_N=np.array([through[name] / whole for name in names]),
        layers_N=np.array(layers),
        step_s_N=np.array([figures.step_s(name) for name in names]),
        room_N=np.array(
            [
                figures.room(
                    name,
                    held=end - first,
                    layers=mean,
                    ends=(first == 0, end == figures.problem.model.num_layers),
                )
                for name, (first, end), mean in zip(names, ranges, layers, strict=True)
            ]
        ),
        decode_limit_N=np.array(
            [
                figures.decode_limit(name, held=count)
                for name, count in zip(names, held, strict=True)
            ]
        ),
        tail_E=np.array([number_of.get(source, OUTSIDE) for source, _ in ends], dtype=np.int64),
        head_E=np.array([number_of.get(target, OUTSIDE) for _, target in ends], dtype=np.int64),
        share_E=np.array([flows[pair] / whole for pair in ends]),
        bandwidth_E=np.empty(len(ends)),
        latency_E=np.empty(len(ends)),
        crowding_E=np.empty(len(ends)),
        return_s=0.0,
    )
    packed, shares = load.packed(figures.tables), figures.links.num_shares
    if not _find_connections(
        figures.model.as_array(),
        figures.links.packed,
        np.array([figures.end_of[name] for name in names], dtype=np.int64),
        packed,
        np.empty(2 * len(names) + shares),
        np.empty(2 * shares, dtype=np.int64),
    ):
        raise InvalidPlacement("something flows where the cluster has no link")
    return replace(load, return_s=packed.value("return_s"))


_find_connections = function(
    "find_connections", I64, REALS, POINTER, INTEGERS, POINTER, REALS, INTEGERS
)
