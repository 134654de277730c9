"""The answers of a replanning: what the objective makes large against bytes moved."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from planner.domain.placement import Placement
from planner.domain.plan import Incumbent
from planner.domain.plan_forecast import PlanForecast
from planner.domain.problem import Problem
from planner.placers.board import Objective, Score
from planner.placers.budgeted_moves import moved_layers
from planner.tuning.replanning import ReplanAnswersTuning as tuned

ZERO_MOVES = "zero moves"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanPoint:
    """One possible answer: a placement, its score now, and the bytes that nodes must load."""

    placement: Placement
    score: Score
    moved_bytes: float
    method: str
    elapsed_s: float

    @property
    def flow_tokens_per_s(self) -> float:
        return self.score.flow_tokens_per_s

    @property
    def value(self) -> float:
        """Value of the objective; 0 if the placement serves nothing."""
        return self.score.merit[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """The answers. `pareto` rises in bytes and in value; `chosen` is the best within the budget.

    `zero_moves` may serve nothing. `from_scratch` (None: none found in time) ignores what runs.
    No placement's flow exceeds `upper_bound_tokens_per_s`, the best bound that was proven in the
    time. Where the flow is not the objective, values are estimates, and the best of these were
    simulated to choose one: `forecast` is the chosen one's.
    """

    zero_moves: ReplanPoint
    from_scratch: ReplanPoint | None
    pareto: tuple[ReplanPoint, ...]
    chosen: ReplanPoint
    upper_bound_tokens_per_s: float
    forecast: PlanForecast | None = None


ReplanProgress: TypeAlias = Callable[[ReplanPoint], None]
"""Called for every answer that no earlier one beats in both value and bytes."""


class LeastBound:
    """The least bound on the flow that searches proved; hears of their progress."""

    def __init__(self, tokens_per_s: float) -> None:
        self.tokens_per_s = tokens_per_s

    def __call__(self, incumbent: Incumbent, /) -> None:
        self.tokens_per_s = min(self.tokens_per_s, incumbent.upper_bound_tokens_per_s)


class Front:
    """The Pareto front of answers, by value and bytes."""

    def __init__(
        self,
        problem: Problem,
        running: Placement,
        *,
        objective: Objective,
        elapsed: Callable[[], float] = lambda: 0.0,
        hear: ReplanProgress = lambda _: None,
    ) -> None:
        self.running = running
        self._problem = problem
        self._objective = objective
        self._elapsed = elapsed
        self._hear = hear
        self._points: list[ReplanPoint] = []

    def value_of(self, placement: Placement) -> float:
        """Value of the objective."""
        return self._objective.score(placement).merit[0]

    def layers_to_load(self, placement: Placement) -> int:
        return moved_layers(self.running, placement)

    def point(self, placement: Placement, *, method: str) -> ReplanPoint:
        return ReplanPoint(
            placement=placement,
            score=self._objective.score(placement),
            moved_bytes=self.layers_to_load(placement) * self._problem.model.bytes_per_layer,
            method=method,
            elapsed_s=self._elapsed(),
        )

    def offer(self, placement: Placement, *, method: str) -> ReplanPoint:
        """Score an answer; store and report it unless a known one is as good in both."""
        new = self.point(placement, method=method)
        if not any(_is_as_good(old, new) for old in self._points):
            self._points = [old for old in self._points if not _is_as_good(new, old)] + [new]
            self._hear(new)
        return new

    def best_within(self, budget_layers: int) -> ReplanPoint | None:
        """The answer of most value that loads no more."""
        budget_bytes = budget_layers * self._problem.model.bytes_per_layer
        within = [point for point in self._points if point.moved_bytes <= budget_bytes]
        return max(within, key=lambda point: point.value, default=None)

    @property
    def most_value(self) -> float:
        return max((point.value for point in self._points), default=0.0)

    def cheapest_from(self, value: float) -> ReplanPoint | None:
        """The answer of fewest bytes with that value or more."""
        enough = [point for point in self._points if point.value >= value]
        return min(enough, key=lambda point: point.moved_bytes, default=None)

    def budgets(self, fresh: ReplanPoint | None, asked_bytes: float | None) -> list[int]:
        """Layers to load at most: what is asked for, and a share of what a fresh start loads."""
        whole = [self._problem.model.num_layers]
        if fresh is not None:
            # Exchanging equal nodes may give the same value with fewer bytes than a fresh start.
            alike = self.cheapest_from(fresh.value * (1 - 1e-9))
            whole = [self.layers_to_load(point.placement) for point in (fresh, alike or fresh)]
        usual = {max(1, int(layers * tuned.BUDGET_SHARE)) for layers in whole}
        if asked_bytes is None:
            return sorted(usual, reverse=True)
        asked = int(asked_bytes / self._problem.model.bytes_per_layer)
        return sorted({asked} | {layers for layers in usual if layers < asked}, reverse=True)

    def pareto(self) -> tuple[ReplanPoint, ...]:
        """Answers in order of bytes, hence of value; never empty after the first offer."""
        return tuple(sorted(self._points, key=lambda point: point.moved_bytes))


def _is_as_good(one: ReplanPoint, other: ReplanPoint) -> bool:
    return one.value >= other.value * (1 - 1e-9) and one.moved_bytes <= other.moved_bytes
