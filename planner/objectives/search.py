"""The search for an objective other than flow: estimates to search by, simulations to decide by.

1. Candidates from elsewhere (baselines, what ran before, the largest flow) are estimated.
2. Arenas: the whole cluster, and every part of every way to divide it into components. Each is
   seeded by the stage patterns of a sweep of hop limits and annealed on the estimate, in rounds of
   growing length, until rounds in a row find nothing better. Pins leave the arenas out.
3. The best placements by estimate, and every baseline, are simulated under the policy; the winner
   is then simulated with two more seeds. So the answer is below no baseline under that policy.

Rounds count moves, not seconds: the clock only cuts them off.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from planner.domain.placement import Placement
from planner.domain.plan_forecast import PlanForecast, SimulatedFigures
from planner.domain.rules import PlacementRules
from planner.objectives.arena import Arena
from planner.objectives.partitions import partitions
from planner.objectives.trial import Span, Trial, Trials
from planner.placers.base import CancelToken

PLACER = "stages by estimate"
COMPONENTS = "components by estimate"
_MOVES_PER_NODE = 150
_MOST_ROUNDS = 12
_IDLE_ROUNDS = 3
_HOTNESS = (0.02, 0.1, 0.005)
_DIVIDED_AFTER_ROUNDS = 2
_HOPELESS = 0.8  # of the best value; components below are given up
_PATTERNS_SHARE_OF_TIME = 0.1
_MOVES_AT_ONCE = 5_000
_SIMULATED = 8
_ALIKE = 1e-6
_RANKING = Span(warm_up=1.0, window=1.0)
_FINAL = Span(warm_up=1.5, window=1.5)
_FINAL_SEEDS = 2
# Shorter runs show the ramp, not the plan.
_LEAST_LIFETIMES = 0.5
_SHARE_OF_TIME_PER_RUN = 0.2
_SHARE_OF_TIME_FOR_ONE = 0.7
_TOO_LITTLE = 1e-9


_Key: TypeAlias = tuple[tuple[tuple[str, int, int], ...], frozenset[frozenset[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The placement to take, and what it is forecast to deliver."""

    trial: Trial
    forecast: PlanForecast
    stop_reason: str


class ServingSearch:
    """Collects candidates for `Trials.goal`, then decides."""

    def __init__(
        self,
        trials: Trials,
        *,
        rules: PlacementRules,
        seed: int,
        cancel: CancelToken,
        clock: Callable[[], float],
        on_better: Callable[[Trial], None],
    ) -> None:
        self._trials = trials
        self._rules = rules
        self._seed = seed
        self._cancel = cancel
        self._clock = clock
        self._on_better = on_better
        self._tried: dict[_Key, Trial] = {}
        self._guards: list[Trial] = []
        self._best: Trial | None = None

    def offer(self, placement: Placement, *, placer: str, is_guard: bool = False) -> Trial:
        """Estimate it; a guard is simulated whatever its estimate."""
        ranges = ((name, held.first, held.end) for name, held in placement.layers.items())
        key = (tuple(sorted(ranges)), frozenset(placement.components))
        if key not in self._tried:
            self._tried[key] = self._trials.estimated(placement, placer=placer)
        trial = self._tried[key]
        if is_guard and trial not in self._guards:
            self._guards.append(trial)
        if trial.value > 0 and (self._best is None or trial.value > self._best.value):
            self._best = trial
            self._on_better(trial)
        return trial

    def run(self, *, time_limit_s: float) -> str:
        """Search; returns why it ended."""
        started_s = self._clock()
        ends_s = started_s + time_limit_s
        if self._rules.pinned or not self._trials.problem.cluster.nodes:
            return "heuristic"
        divisions = self._divisions()
        for division in divisions:
            for arena in division:
                if self._is_over(ends_s):
                    break
                arena.seed_by_patterns(
                    time_limit_s=time_limit_s * _PATTERNS_SHARE_OF_TIME,
                    cancel=self._cancel,
                    clock=self._clock,
                )
            self._offer_division(division, ends_s=ends_s)
        idle = 0
        for number in range(_MOST_ROUNDS):
            if self._is_over(ends_s) or idle >= _IDLE_ROUNDS or not divisions:
                break
            before = self._best.value if self._best else 0.0
            reached = []
            for division in divisions:
                for arena in division:
                    self._anneal(arena, number, ends_s=ends_s)
                reached.append(self._offer_division(division, ends_s=ends_s))
            after = self._best.value if self._best else 0.0
            idle = 0 if after > before * (1 + 1e-3) else idle + 1
            if number + 1 >= _DIVIDED_AFTER_ROUNDS:
                divisions = [
                    division
                    for division, value in zip(divisions, reached, strict=True)
                    if len(division) == 1 or value >= _HOPELESS * after
                ]
        if self._cancel.is_cancelled():
            return "cancelled"
        return "time limit" if self._clock() >= ends_s else "heuristic"

    def decide(self, *, time_limit_s: float) -> Decision | None:
        """Simulate the most promising; None where no candidate serves anything."""
        ends_s = self._clock() + time_limit_s
        ranked = sorted(self._tried.values(), key=lambda trial: trial.value, reverse=True)
        ranked = _distinct(trial for trial in ranked if trial.value > 0)
        if not ranked:
            return None
        chosen = [ranked[0], *(guard for guard in self._guards if guard.value > 0)]
        chosen += [trial for trial in ranked[1:_SIMULATED] if trial not in chosen]
        span = self._affordable(ranked[0], time_limit_s)
        best, best_figures, best_value = ranked[0], None, 0.0
        slowest_s = self._trials.simulation_s(ranked[0], span)

        def final_s(one_s: float) -> float:
            return one_s * _FINAL_SEEDS * _FINAL.lifetimes / span.lifetimes

        for candidate in chosen if span.lifetimes >= _LEAST_LIFETIMES else ():
            begun_s = self._clock()
            left_s = ends_s - begun_s - slowest_s
            is_first = best_figures is None
            if (left_s < final_s(slowest_s) and not (is_first and left_s > 0)) or (
                self._cancel.is_cancelled()
            ):
                break
            figures = self._trials.simulated(candidate, seeds=(self._seed,), span=span)
            slowest_s = max(slowest_s, self._clock() - begun_s)
            value = self._value(candidate, figures)
            if value > best_value:
                best, best_figures, best_value = candidate, figures, value
        if best_figures is not None and self._clock() + final_s(slowest_s) <= ends_s:
            seeds = tuple(self._seed + number for number in range(1, 1 + _FINAL_SEEDS))
            best_figures = self._trials.simulated(best, seeds=seeds, span=_FINAL) or best_figures
        return Decision(
            trial=best,
            forecast=self._trials.forecast(best, best_figures),
            stop_reason="cancelled" if self._cancel.is_cancelled() else "heuristic",
        )

    def _affordable(self, trial: Trial, time_limit_s: float) -> Span:
        """The span that leaves time for several candidates, else for one; else too short."""
        cost_s = self._trials.simulation_s(trial, _RANKING)
        share = _SHARE_OF_TIME_PER_RUN * time_limit_s / cost_s
        if share * _RANKING.lifetimes < _LEAST_LIFETIMES:
            share = _SHARE_OF_TIME_FOR_ONE * time_limit_s / cost_s
        return _RANKING.scaled(max(_TOO_LITTLE, min(1.0, share)))

    def _value(self, trial: Trial, figures: SimulatedFigures | None) -> float:
        if figures is None:
            return 0.0
        return self._trials.value(trial.placement, figures.decode_tokens_per_s)

    def _divisions(self) -> list[list[Arena]]:
        problem = self._trials.problem
        whole = tuple(node.name for node in problem.cluster.nodes)
        divisions = []
        for number, partition in enumerate([(whole,), *partitions(problem)]):
            divisions.append(
                [
                    Arena(
                        self._trials.estimator,
                        names=names,
                        rules=self._rules,
                        goal=self._trials.goal,
                        seed=self._seed * 37 + number * 5 + part,
                    )
                    for part, names in enumerate(partition)
                ]
            )
        for trial in list(self._tried.values()):
            for division in divisions:
                for arena in division:
                    arena.offer(trial.placement)
        return divisions

    def _offer_division(self, division: list[Arena], *, ends_s: float) -> float:
        """The best of every arena together; of the whole cluster's, the others it keeps too.

        Returns the best value of these, 0 if there are none.
        """
        if len(division) == 1:
            value = 0.0
            for placement in division[0].placements():
                value = max(value, self.offer(placement, placer=PLACER).value)
                if self._is_over(ends_s):
                    break
            return value
        parts = [arena.best for arena in division]
        placed = [part for part in parts if part is not None]
        if len(placed) < 2:
            return 0.0
        together = Placement(
            layers={name: held for part in placed for name, held in part.layers.items()},
            components=tuple(frozenset(part.layers) for part in placed),
        )
        return self.offer(together, placer=COMPONENTS).value

    def _anneal(self, arena: Arena, number: int, *, ends_s: float) -> None:
        """A round in slices, so that the clock and a cancel are heard."""
        left = _MOVES_PER_NODE * 2**number * len(arena.names)
        while left > 0 and not self._is_over(ends_s):
            moves = min(left, _MOVES_AT_ONCE)
            arena.anneal(moves=moves, hot=_HOTNESS[number % len(_HOTNESS)])
            left -= moves

    def _is_over(self, ends_s: float) -> bool:
        return self._cancel.is_cancelled() or self._clock() >= ends_s


def _distinct(trials: Iterable[Trial]) -> list[Trial]:
    """Without those whose estimate and flow equal a better one's: the same plan by other names."""
    kept: list[Trial] = []
    for trial in trials:
        if not any(
            abs(trial.value - other.value) <= _ALIKE * other.value
            and abs(trial.flow.value_tokens_per_s - other.flow.value_tokens_per_s)
            <= _ALIKE * other.flow.value_tokens_per_s
            for other in kept
        ):
            kept.append(trial)
    return kept
