"""Stage patterns: a length and how many nodes of each kind run it together, found as they pay off.

Placing aligned stages is a cutting-stock problem: choose patterns whose lengths add up to the
model, with every node used once. Its linear program is solved by column generation; its columns are
what the integer program then chooses from.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from planner.bounds.cover import Floats, Integers, cheapest_covers
from planner.bounds.node_kinds import NodeKind
from planner.bounds.packing_program import PackingProgram

_UNITS = 4000
_MAX_ROUNDS = 60
_PAYS_OFF = 1e-6  # layers; a pattern that adds less to the program is not worth a column
# Speeds are added in floats: a stage of exactly the target must not fail by the last bit.
_REACHES = 1 - 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternFamily:
    """Where patterns may come from: which kinds, how many nodes at least, and what links let pass.

    A node counts for at most `usable_tokens_per_s`. Every stage of the family uses
    `use_of_rows` of the program's rows beyond the kinds'.
    """

    kinds: tuple[int, ...]
    min_nodes: int = 1
    usable_tokens_per_s: float = float("inf")
    use_of_rows: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePattern:
    """`counts` nodes of each kind hold the same `layers` layers, `tokens_per_s` together."""

    family: int
    layers: int
    counts: tuple[tuple[int, int], ...]
    tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraColumn:
    """A column of the program that is no pattern, such as "this region is visited"."""

    use_of_rows: Mapping[int, float]
    upper: float
    value: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The program's rows: first one for each kind (its nodes), then the extra ones."""

    extra_limits: tuple[float, ...] = ()
    extra_columns: tuple[ExtraColumn, ...] = ()


class PatternPool:
    """Every pattern found so far, for any flow; patterns are kept from one flow to the next."""

    def __init__(self, kinds: list[NodeKind], families: list[PatternFamily], rows: Rows) -> None:
        self.kinds = kinds
        self.families = families
        self.rows = rows
        self._patterns: dict[tuple[int, int, tuple[tuple[int, int], ...]], StagePattern] = {}
        self._lengths = sorted({layers for kind in kinds for layers in kind.tokens_per_s})

    def patterns_for(self, flow: float) -> list[StagePattern]:
        """Those that carry the flow."""
        return [
            pattern
            for pattern in self._patterns.values()
            if pattern.tokens_per_s >= flow * _REACHES
        ]

    def most_layers(self, flow: float) -> float:
        """How many layers fractional stages of this flow can hold; finds the patterns for it."""
        program = self._program()
        known: set[tuple[int, int, tuple[tuple[int, int], ...]]] = set()
        for pattern in self.patterns_for(flow):
            known.add(_key(pattern))
            self._add_to(program, pattern)
        value = 0.0
        for _ in range(_MAX_ROUNDS):
            solution = program.solve()
            value = solution.value
            fresh = [
                pattern
                for pattern in self._priced(flow, solution.row_prices)
                if _key(pattern) not in known
            ]
            if not fresh:
                break
            for pattern in fresh:
                known.add(_key(pattern))
                self._patterns[_key(pattern)] = pattern
                self._add_to(program, pattern)
        return value

    def use_of_rows(self, pattern: StagePattern) -> dict[int, float]:
        use = {kind: float(number) for kind, number in pattern.counts}
        return use | dict(self.families[pattern.family].use_of_rows)

    def row_limits(self) -> list[float]:
        return [float(kind.count) for kind in self.kinds] + list(self.rows.extra_limits)

    def _program(self) -> PackingProgram:
        program = PackingProgram(self.row_limits())
        for column in self.rows.extra_columns:
            program.add_column(column.use_of_rows, value=column.value, upper=column.upper)
        return program

    def _add_to(self, program: PackingProgram, pattern: StagePattern) -> None:
        program.add_column(self.use_of_rows(pattern), value=float(pattern.layers))

    def _priced(self, flow: float, row_prices: Floats) -> list[StagePattern]:
        """For every family and length the cheapest pattern, where it pays off."""
        found = []
        for number, family in enumerate(self.families):
            per_stage = sum(row_prices[row] * use for row, use in family.use_of_rows.items())
            for layers in self._lengths:
                pattern = self._cheapest(number, layers, flow=flow, row_prices=row_prices)
                if pattern is None:
                    continue
                price = sum(row_prices[kind] * count for kind, count in pattern.counts)
                if layers - price - per_stage > _PAYS_OFF:
                    found.append(pattern)
        return found

    def _cheapest(
        self, family_number: int, layers: int, *, flow: float, row_prices: Floats
    ) -> StagePattern | None:
        family = self.families[family_number]
        kinds = [kind for kind in family.kinds if layers in self.kinds[kind].tokens_per_s]
        speeds = {
            kind: min(self.kinds[kind].tokens_per_s[layers], family.usable_tokens_per_s)
            for kind in kinds
        }
        units: Integers = np.array(
            [int(min(1.0, speeds[kind] / flow) * _UNITS * (1 + 1e-12)) for kind in kinds],
            dtype=np.int64,
        )
        useful = [position for position, unit in enumerate(units) if unit > 0]
        if not useful:
            return None
        covers = cheapest_covers(
            np.array([row_prices[kinds[position]] for position in useful]),
            units[useful],
            target_units=_UNITS,
            at_least=family.min_nodes if family.min_nodes > 1 else 0,
        )
        chosen = covers.items_of(
            units=_UNITS, at_least=family.min_nodes if family.min_nodes > 1 else 0
        )
        counts = Counter({kinds[useful[position]]: count for position, count in chosen.items()})
        tokens_per_s = sum(speeds[kind] * count for kind, count in counts.items())
        return StagePattern(
            family=family_number,
            layers=layers,
            counts=tuple(sorted(counts.items())),
            tokens_per_s=tokens_per_s,
        )


def _key(pattern: StagePattern) -> tuple[int, int, tuple[tuple[int, int], ...]]:
    return pattern.family, pattern.layers, pattern.counts
