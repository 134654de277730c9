"""The answers of a replanning: flow against bytes moved, by exact max flow."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from planner.domain.flow import Flow
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.placers.budgeted_moves import moved_layers
from planner.placers.flow_meter import FlowMeter, flow_under
from planner.plan_options import PlanOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanPoint:
    """One possible answer: a placement, its max flow now, and the bytes that nodes must load."""

    placement: Placement
    flow: Flow
    moved_bytes: float
    method: str
    elapsed_s: float

    @property
    def flow_tokens_per_s(self) -> float:
        return self.flow.value_tokens_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """The answers. `pareto` rises in bytes and in flow; `chosen` is its best within the budget.

    `zero_moves` may carry no flow. `from_scratch` (None: none found in time) ignores what runs.
    No placement exceeds `upper_bound_tokens_per_s`, the best bound that was proven in the time.
    """

    zero_moves: ReplanPoint
    from_scratch: ReplanPoint | None
    pareto: tuple[ReplanPoint, ...]
    chosen: ReplanPoint
    upper_bound_tokens_per_s: float


class ReplanProgress(Protocol):
    """Called for every answer that no earlier one beats in both flow and bytes."""

    def __call__(self, point: ReplanPoint, /) -> None: ...


class Front:
    """All answers that none beats, by exact flow and bytes."""

    def __init__(
        self,
        problem: Problem,
        running: Placement,
        *,
        options: PlanOptions,
        elapsed: Callable[[], float],
        hear: ReplanProgress,
    ) -> None:
        self.running = running
        self._problem = problem
        self._options = options
        self._elapsed = elapsed
        self._hear = hear
        self._meter = FlowMeter(problem, options.search_options)
        self._points: list[ReplanPoint] = []

    def flow_of(self, placement: Placement) -> float:
        """The max flow in tokens/s."""
        return self._meter.tokens_per_s(placement)

    def layers_to_load(self, placement: Placement) -> int:
        return moved_layers(self.running, placement)

    def point(self, placement: Placement, *, method: str) -> ReplanPoint:
        return ReplanPoint(
            placement=placement,
            flow=flow_under(self._options.search_options, self._problem, placement),
            moved_bytes=self.layers_to_load(placement) * self._problem.model.bytes_per_layer,
            method=method,
            elapsed_s=self._elapsed(),
        )

    def offer(self, placement: Placement, *, method: str) -> ReplanPoint:
        """Measure an answer; keep and report it unless one known is as good in both."""
        new = self.point(placement, method=method)
        if not any(_is_as_good(old, new) for old in self._points):
            self._points = [old for old in self._points if not _is_as_good(new, old)] + [new]
            self._hear(new)
        return new

    def best_within(self, budget_layers: int) -> ReplanPoint | None:
        """The answer of most flow that loads no more."""
        budget_bytes = budget_layers * self._problem.model.bytes_per_layer
        within = [point for point in self._points if point.moved_bytes <= budget_bytes]
        return max(within, key=lambda point: point.flow_tokens_per_s, default=None)

    @property
    def most_flow_tokens_per_s(self) -> float:
        return max((point.flow_tokens_per_s for point in self._points), default=0.0)

    def cheapest_from(self, flow_tokens_per_s: float) -> ReplanPoint | None:
        """The answer of fewest bytes with that flow or more."""
        enough = [p for p in self._points if p.flow_tokens_per_s >= flow_tokens_per_s]
        return min(enough, key=lambda point: point.moved_bytes, default=None)

    def pareto(self) -> tuple[ReplanPoint, ...]:
        """In order of bytes, and so of flow; never empty once something was offered."""
        return tuple(sorted(self._points, key=lambda point: point.moved_bytes))


def _is_as_good(one: ReplanPoint, other: ReplanPoint) -> bool:
    return (
        one.flow_tokens_per_s >= other.flow_tokens_per_s * (1 - 1e-9)
        and one.moved_bytes <= other.moved_bytes
    )
