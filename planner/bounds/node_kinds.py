"""Nodes that are alike for a search, counted together.

Bounds and integer programs then grow with the number of kinds, not with the number of nodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from planner.capacity import LayerLimits, allowed_limits, throughput_tokens_per_s
from planner.domain.placement import LayerRange
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules

NO_RULES = PlacementRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    """Nodes of one group that run j layers at the same speeds.

    `tokens_per_s` maps j, the layers held, to T_j > 0 for what such a node may hold. `limits` are
    fewer layers at an end of the model; None where the ends cost the nodes nothing.
    """

    group: str
    tokens_per_s: Mapping[int, float]
    names: tuple[str, ...]
    limits: LayerLimits | None = None

    def may_hold(self, held: LayerRange, *, num_layers: int) -> bool:
        """False for layers at an end of the model that its nodes have no memory for."""
        return self.limits is None or self.limits.allow(held, num_layers=num_layers)

    @property
    def count(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A node of kind number `kind` that holds `layers` layers at `tokens_per_s`."""

    kind: int
    layers: int
    tokens_per_s: float


def node_kinds(
    problem: Problem,
    *,
    rules: PlacementRules = NO_RULES,
    groups: Mapping[str, str] | None = None,
    usable_tokens_per_s: Mapping[str, float] | None = None,
) -> list[NodeKind]:
    """The kinds, in the order of their first nodes; nodes that can run nothing are in none.

    `groups` (node -> group) keeps nodes of different groups apart. `usable_tokens_per_s` (node ->
    tokens/s) cuts a node's speeds, for example at what its links carry. A pinned node may hold
    exactly its pin's number of layers.
    """
    names_by_key: dict[
        tuple[str, tuple[tuple[int, float], ...], LayerLimits | None], list[str]
    ] = {}
    for node in problem.cluster.nodes:
        pin = rules.pinned.get(node.name)
        limits = allowed_limits(problem, node.name, rules)
        usable = (usable_tokens_per_s or {}).get(node.name, float("inf"))
        speeds = tuple(
            (layers, speed)
            for layers in range(1, limits.middle + 1)
            if (speed := min(usable, throughput_tokens_per_s(problem, node.name, layers))) > 0
            and (pin is None or layers == len(pin))
        )
        if speeds:
            group = "" if groups is None else groups[node.name]
            at_ends = limits if min(limits) < limits.middle else None
            names_by_key.setdefault((group, speeds, at_ends), []).append(node.name)
    return [
        NodeKind(group=group, tokens_per_s=dict(speeds), names=tuple(names), limits=at_ends)
        for (group, speeds, at_ends), names in names_by_key.items()
    ]


def undominated_items(kinds: list[NodeKind], *, enough_tokens_per_s: float) -> list[Item]:
    """Every (kind, j) that no larger j of the same kind beats in speed as well.

    Speed beyond `enough_tokens_per_s` has no value. A node that holds more layers at no less speed
    can replace the dominated one wherever layers are covered one by one.
    """
    items = []
    for number, kind in enumerate(kinds):
        best_speed = 0.0
        for layers in sorted(kind.tokens_per_s, reverse=True):
            speed = min(kind.tokens_per_s[layers], enough_tokens_per_s)
            if speed > best_speed:
                best_speed = speed
                items.append(Item(kind=number, layers=layers, tokens_per_s=speed))
    return items
