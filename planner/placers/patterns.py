"""Stage patterns: a length and how many nodes of each kind run it, by column generation.

Placing aligned stages is a cutting-stock problem: choose patterns whose lengths add up to the
model, with every node used once. Its linear program is solved by column generation; its columns are
what the integer program then chooses from.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from planner.bounds.cover import Floats, Integers, cheapest_covers, cheapest_covers_with_spare
from planner.bounds.node_kinds import NodeKind
from planner.bounds.packing_program import PackingProgram
from planner.tuning.flow import PatternsTuning as tuned

# Speeds are added in floats: a stage of exactly the target must not fail by the last bit.
_REACHES = 1 - 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePattern:
    """`counts` nodes of each kind hold the same `layers` layers."""

    layers: int
    counts: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageNodes:
    """A stage of whole nodes: its layers and the kind of each node."""

    layers: int
    kinds: tuple[int, ...]


class PatternPool:
    """Every pattern found so far, for any flow; patterns are reused for the next flow.

    The program's rows, with their limits: one for each kind (its nodes); with `max_stages` one more
    counts all stages. With `spares` 1 (not 0) a stage's fastest node counts for nothing: what is
    left when one fails.

    `num_priced` counts the searches for a cheapest pattern: a pool's work consists of these.
    """

    def __init__(
        self, kinds: list[NodeKind], *, max_stages: int | None = None, spares: int = 0
    ) -> None:
        self.kinds = kinds
        self.row_limits = [float(kind.count) for kind in kinds]
        self._use_of_stage: dict[int, float] = {}
        if max_stages is not None:
            self._use_of_stage[len(self.row_limits)] = 1.0
            self.row_limits.append(float(max_stages))
        self.num_priced = 0
        self._spares = spares
        self._patterns: dict[StagePattern, None] = {}
        self._lengths = sorted({layers for kind in kinds for layers in kind.tokens_per_s})

    def patterns_for(self, flow: float) -> list[StagePattern]:
        """Known patterns that carry the flow."""
        return [
            pattern for pattern in self._patterns if self._tokens_per_s(pattern) >= flow * _REACHES
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
        ends with less than it might find. Lengths that had nothing to offer are asked again only
        when no other has anything.
        """
        program = PackingProgram(self.row_limits)
        carrying = self.patterns_for(flow)
        known = set(carrying)
        for pattern in carrying:
            self._add_to(program, pattern)
        promising = self._lengths
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
            if not fresh and len(promising) < len(self._lengths):
                fresh = ask(self._lengths, spare=0.0)
            if not fresh:
                self._patterns |= dict.fromkeys(ask(self._lengths, spare=max(0.0, value - needed)))
                break
            promising = [pattern.layers for pattern in fresh]
            known.update(fresh)
            self._patterns |= dict.fromkeys(fresh)
            for pattern in fresh:
                self._add_to(program, pattern)
        return value

    def use_of_rows(self, pattern: StagePattern) -> dict[int, float]:
        return {kind: float(number) for kind, number in pattern.counts} | self._use_of_stage

    def carries(self, stages: Sequence[StageNodes]) -> float:
        """The largest flow that every stage carries."""
        return min(self._carried_by(stage) for stage in stages)

    def _carried_by(self, stage: StageNodes) -> float:
        speeds = sorted(
            self.kinds[kind].tokens_per_s.get(stage.layers, 0.0) for kind in stage.kinds
        )
        return sum(speeds[: len(speeds) - self._spares])

    def _tokens_per_s(self, pattern: StagePattern) -> float:
        speeds = {kind: self.kinds[kind].tokens_per_s[pattern.layers] for kind, _ in pattern.counts}
        together = sum(count * speeds[kind] for kind, count in pattern.counts)
        return together - self._spares * max(speeds.values(), default=0.0)

    def _add_to(self, program: PackingProgram, pattern: StagePattern) -> None:
        program.add_column(self.use_of_rows(pattern), value=float(pattern.layers))

    def _fresh(
        self,
        flow: float,
        row_prices: Floats,
        lengths: list[int],
        known: set[StagePattern],
        *,
        spare: float,
        should_stop: Callable[[], bool],
    ) -> list[StagePattern]:
        """For every length the cheapest pattern, unless it is known or costs too much."""
        found = []
        for layers in lengths:
            if should_stop():
                break
            pattern = self._cheapest(layers, flow=flow, row_prices=row_prices)
            if pattern is None or pattern in known:
                continue
            use = self.use_of_rows(pattern)
            price = sum(row_prices[row] * amount for row, amount in use.items())
            if layers - price > tuned.PAYS_OFF - spare:
                found.append(pattern)
        return found

    def _cheapest(self, layers: int, *, flow: float, row_prices: Floats) -> StagePattern | None:
        self.num_priced += 1
        units_of = {
            number: int(min(flow, kind.tokens_per_s[layers]) / flow * tuned.UNITS / _REACHES)
            for number, kind in enumerate(self.kinds)
            if layers in kind.tokens_per_s
        }
        useful = [kind for kind, units in units_of.items() if units > 0]
        if not useful:
            return None
        prices: Floats = np.array([row_prices[kind] for kind in useful])
        units: Integers = np.array([units_of[kind] for kind in useful], dtype=np.int64)
        find = cheapest_covers_with_spare if self._spares else cheapest_covers
        cover = find(prices, units, target_units=tuned.UNITS).order_of(units=tuned.UNITS)
        counts = Counter(useful[position] for position, _ in cover)
        return StagePattern(layers=layers, counts=tuple(sorted(counts.items())))
