"""Nodes that are alike and hold the same layers now, and stages that are held by them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from planner.bounds.node_kinds import NodeKind
from planner.domain.placement import LayerRange, Placement
from planner.domain.rules import PlacementRules

Holder = tuple[int, LayerRange]
"""(number of a group, what one of its nodes holds)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StayGroup:
    """Nodes of one kind that hold the same layers now; `held` is None where they hold nothing."""

    kind: int
    held: LayerRange | None
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StayColumn:
    """`held` layers by nodes (by their groups, one entry each; see `in_order`).

    Every layer of `range` is carried with at least `tokens_per_s`.
    """

    range: LayerRange
    held: tuple[Holder, ...]
    layers_to_load: int
    tokens_per_s: float

    @property
    def nodes_of_group(self) -> Counter[int]:
        return Counter(group for group, _ in self.held)


def with_another_node(column: StayColumn, groups: Sequence[StayGroup]) -> Iterator[StayColumn]:
    """The columns that have a node of another group of its kind in the place of one of theirs."""
    used = column.nodes_of_group
    for place, (group, held) in enumerate(column.held):
        saved = held.beyond(groups[group].held)
        for number, other in enumerate(groups):
            is_free = used[number] < len(other.names)
            if number != group and other.kind == groups[group].kind and is_free:
                holders = [*column.held[:place], (number, held), *column.held[place + 1 :]]
                yield replace(
                    column,
                    held=in_order(holders),
                    layers_to_load=column.layers_to_load - saved + held.beyond(other.held),
                )


def in_order(holders: Iterable[Holder]) -> tuple[Holder, ...]:
    """As columns have them, so that equal columns compare equal."""
    return tuple(sorted(holders, key=lambda one: (one[0], one[1].first, one[1].end)))


def stay_groups(
    kinds: Sequence[NodeKind], running: Placement, rules: PlacementRules
) -> Iterator[StayGroup]:
    """Groups of all nodes of the kinds except pinned ones."""
    for number, kind in enumerate(kinds):
        names_by_held: dict[LayerRange | None, list[str]] = {}
        for name in kind.names:
            if name not in rules.pinned:
                names_by_held.setdefault(running.layers.get(name), []).append(name)
        for held, names in names_by_held.items():
            yield StayGroup(kind=number, held=held, names=tuple(names))
