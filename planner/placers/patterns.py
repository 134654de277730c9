"""Stage patterns: a length and how many nodes of each kind run it, by column generation.

Placing aligned stages is a cutting-stock problem: choose patterns whose lengths add up to the
model, with every node used once. Its linear program is solved by column generation; its columns are
what the integer program then chooses from.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from planner.bounds.cover import Floats, Integers, cheapest_covers, cheapest_covers_with_spare
from planner.bounds.node_kinds import NodeKind
from planner.bounds.packing_program import PackingProgram
from planner.tuning.flow import PatternsTuning as tuned

# Speeds are added in floats: a stage of exactly the target must not fail by the last bit.
_REACHES = 1 - 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternFamily:
    """A source of patterns: the kinds it may use, and the links to neighbouring stages.

    Every stage of the family uses `use_of_rows` of the program's rows beyond the kinds'.

    With links of `link_tokens_per_s` = c between any two nodes of neighbouring stages, a node
    counts for at most F / w of a flow F, where w = (F / c) ** `width_exponent`. If the exponents of
    two neighbouring stages add up to 1, so that w * w' = F / c, they pass F on: a cut leaves s
    nodes of the first and q of the second on the far sides of their links. Where q >= w', the c q
    of every such node of the first carries its F / w = c w', so it may as well be cut itself; the
    same where s >= w. Else the cut is at least
    `2 F - s F / w - q F / w' + c s q = F (1 + (1 - s / w) (1 - q / w')) >= F`.

    With `spares` 1 (not 0) a stage's fastest node counts for nothing: what is left when one fails.
    """

    kinds: tuple[int, ...]
    link_tokens_per_s: float = math.inf
    width_exponent: float = 0.0
    spares: int = 0
    use_of_rows: Mapping[int, float] = field(default_factory=dict)

    def countable_tokens_per_s(self, flow: float) -> float:
        """The most that one node counts for; never less than what a flow below c needs."""
        if self.width_exponent == 0 or flow <= self.link_tokens_per_s:
            return math.inf
        return flow * math.pow(self.link_tokens_per_s / flow, self.width_exponent)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePattern:
    """`counts` nodes of each kind hold the same `layers` layers."""

    family: int
    layers: int
    counts: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageNodes:
    """A stage of whole nodes: its layers, the kind of each node, the family of its pattern."""

    layers: int
    kinds: tuple[int, ...]
    family: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraColumn:
    """A column of the program that is no pattern, such as "this region is visited"."""

    use_of_rows: Mapping[int, float]
    upper: float


class PatternPool:
    """Every pattern found so far, for any flow; patterns are reused for the next flow.

    The program's rows, with their limits: one for each kind (its nodes), then extra ones; with
    `max_stages` the last counts all stages.

    `num_priced` counts the searches for a cheapest pattern: a pool's work consists of these.
    """

    def __init__(
        self,
        kinds: list[NodeKind],
        families: list[PatternFamily],
        *,
        extra_limits: Sequence[float] = (),
        extra_columns: Sequence[ExtraColumn] = (),
        max_stages: int | None = None,
    ) -> None:
        self.kinds = kinds
        self.families = families
        self.extra_columns = extra_columns
        self.row_limits = [*(float(kind.count) for kind in kinds), *extra_limits]
        self._use_of_stage: dict[int, float] = {}
        if max_stages is not None:
            self._use_of_stage[len(self.row_limits)] = 1.0
            self.row_limits.append(float(max_stages))
        self.num_priced = 0
        self._patterns: dict[StagePattern, None] = {}
        self._lengths_of = [
            sorted({layers for kind in family.kinds for layers in kinds[kind].tokens_per_s})
            for family in families
        ]

    def patterns_for(self, flow: float) -> list[StagePattern]:
        """Known patterns that carry the flow."""
        return [
            pattern
            for pattern in self._patterns
            if self._countable_tokens_per_s(pattern, flow) >= flow * _REACHES
        ]

    def most_layers(
        self,
        flow: float,
        *,
        needed: float = math.inf,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> float:
        """Most layers that fractional stages of this flow can hold; generates the patterns for it.

        With more than `needed`, finds what whole stages may take as well: a pattern that costs v
        layers more than it has may be part of `needed` layers, if v are to spare. At `should_stop`
        ends with less than it might find. Families and lengths that had nothing to offer are asked
        again only when no other has anything.
        """
        program = self._program()
        carrying = self.patterns_for(flow)
        known = set(carrying)
        for pattern in carrying:
            self._add_to(program, pattern)
        everywhere = [
            (family, layers)
            for family in range(len(self.families))
            for layers in self._lengths_of[family]
        ]
        promising = everywhere
        value = 0.0
        for _ in range(tuned.MAX_ROUNDS):
            solution = program.solve()
            value = solution.value
            if should_stop():
                break
            ask = partial(
                self._fresh, flow, solution.row_prices, known=known, should_stop=should_stop
            )
            fresh = ask(promising, spare=0.0)
            if not fresh and len(promising) < len(everywhere):
                fresh = ask(everywhere, spare=0.0)
            if not fresh:
                self._patterns |= dict.fromkeys(ask(everywhere, spare=max(0.0, value - needed)))
                break
            promising = [(pattern.family, pattern.layers) for pattern in fresh]
            known.update(fresh)
            self._patterns |= dict.fromkeys(fresh)
            for pattern in fresh:
                self._add_to(program, pattern)
        return value

    def exponent_of(self, stage: StageNodes) -> float:
        return self.families[stage.family].width_exponent

    def use_of_rows(self, pattern: StagePattern) -> dict[int, float]:
        use = {kind: float(number) for kind, number in pattern.counts}
        return use | dict(self.families[pattern.family].use_of_rows) | self._use_of_stage

    def carries(self, stages: Sequence[StageNodes]) -> float:
        """The largest flow that every stage carries, its nodes counted as their families count."""
        return min(self._carried_by(stage) for stage in stages)

    def _carried_by(self, stage: StageNodes) -> float:
        """The largest F with sum of min(T, countable(F)) >= F, by bisection from the impossible."""
        family = self.families[stage.family]
        speeds = sorted(
            self.kinds[kind].tokens_per_s.get(stage.layers, 0.0) for kind in stage.kinds
        )
        speeds = speeds[: len(speeds) - family.spares]
        low, high = 0.0, sum(speeds)
        if sum(min(speed, family.countable_tokens_per_s(high)) for speed in speeds) >= high:
            return high
        while high - low > tuned.CARRIED_RELATIVE_WIDTH * high:
            middle = (low + high) / 2
            most = family.countable_tokens_per_s(middle)
            if sum(min(speed, most) for speed in speeds) >= middle:
                low = middle
            else:
                high = middle
        return low

    def _countable_tokens_per_s(self, pattern: StagePattern, flow: float) -> float:
        family = self.families[pattern.family]
        most = family.countable_tokens_per_s(flow)
        speeds = {
            kind: min(most, self.kinds[kind].tokens_per_s[pattern.layers])
            for kind, _ in pattern.counts
        }
        together = sum(count * speeds[kind] for kind, count in pattern.counts)
        return together - family.spares * max(speeds.values(), default=0.0)

    def _program(self) -> PackingProgram:
        program = PackingProgram(self.row_limits)
        for column in self.extra_columns:
            program.add_column(column.use_of_rows, value=0.0, upper=column.upper)
        return program

    def _add_to(self, program: PackingProgram, pattern: StagePattern) -> None:
        program.add_column(self.use_of_rows(pattern), value=float(pattern.layers))

    def _fresh(
        self,
        flow: float,
        row_prices: Floats,
        places: list[tuple[int, int]],
        known: set[StagePattern],
        *,
        spare: float,
        should_stop: Callable[[], bool],
    ) -> list[StagePattern]:
        """For every (family, length) the cheapest pattern, unless it is known or costs too much."""
        found = []
        for number, layers in places:
            if should_stop():
                break
            pattern = self._cheapest(number, layers, flow=flow, row_prices=row_prices)
            if pattern is None or pattern in known:
                continue
            use = self.use_of_rows(pattern)
            price = sum(row_prices[row] * amount for row, amount in use.items())
            if layers - price > tuned.PAYS_OFF - spare:
                found.append(pattern)
        return found

    def _cheapest(
        self, family_number: int, layers: int, *, flow: float, row_prices: Floats
    ) -> StagePattern | None:
        self.num_priced += 1
        family = self.families[family_number]
        most = min(flow, family.countable_tokens_per_s(flow))
        units_of = {
            kind: int(
                min(most, self.kinds[kind].tokens_per_s[layers]) / flow * tuned.UNITS / _REACHES
            )
            for kind in family.kinds
            if layers in self.kinds[kind].tokens_per_s
        }
        useful = [kind for kind, units in units_of.items() if units > 0]
        if not useful:
            return None
        prices: Floats = np.array([row_prices[kind] for kind in useful])
        units: Integers = np.array([units_of[kind] for kind in useful], dtype=np.int64)
        find = cheapest_covers_with_spare if family.spares else cheapest_covers
        cover = find(prices, units, target_units=tuned.UNITS).order_of(units=tuned.UNITS)
        counts = Counter(useful[position] for position, _ in cover)
        return StagePattern(
            family=family_number, layers=layers, counts=tuple(sorted(counts.items()))
        )
