"""A running placement and a changed problem -> what to do: route anew, or move how many bytes.

1. Zero moves: what still stands of the placement, with the max flow it has now. Milliseconds.
2. From scratch: the best placement found without regard to what runs, then with like nodes
   exchanged so that they keep what they hold.
3. Around the running placement: annealed and climbed within a budget of bytes, for several budgets.

Bytes moved are newly held layers times the bytes of a layer; to drop layers costs nothing. All
flows are exact max flows of the changed problem under the rules.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.compute_plan import NoPlacementFound, PlanOptions, compute_plan
from planner.domain.flow import Flow
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.feasibility import check_rules, conform, restricted_problem
from planner.flow_check import check_flow
from planner.max_flow import max_flow
from planner.placers.alignment import aligned_to
from planner.placers.base import CancelToken, InvalidOptions
from planner.placers.budgeted_moves import climb, moved_layers
from planner.placers.range_annealing import RangeAnnealing, coverage_tokens_per_s

ZERO_MOVES = "zero moves"
FROM_SCRATCH = "from scratch"
ALIGNED = "from scratch, like nodes exchanged"
ANNEALED = "annealed"
CLIMBED = "climbed"
_REPAIR_SHARE = 0.5
_REPAIR_MOVES = 10_000
_MOVES = 150_000
_CLIMB_TRIES = 60
_HOTNESS = (0.1, 0.4, 0.8)
_MISLED_SHARE = 0.01
_COOL_HOTNESS = (0.1, 0.2, 0.4)
_GOAL_SHARES = (0.97, 0.985, 0.972, 1.0)
_PATIENCE = 60
_LADDER = (0.25,)
_SCRATCH_SHARE = 0.3
_LEAST_STEP = 2e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanOptions:
    """How to replan: `plan` for the search from scratch, its rules and its seed.

    `time_limit_s` is for everything; a third of it at most goes to the search from scratch.
    `budget_bytes` limits what the chosen answer moves (None: as much as it takes). Around the
    running placement at most `attempts` annealings are tried for each budget, so a search that the
    clock does not end gives the same answer again.
    """

    plan: PlanOptions = field(default_factory=PlanOptions)
    time_limit_s: float = 10.0
    budget_bytes: float | None = None
    attempts: int = 200

    def __post_init__(self) -> None:
        if not 0 < self.time_limit_s < float("inf"):
            raise InvalidOptions(
                f"time_limit_s is {self.time_limit_s}; it must be a finite number above 0"
            )
        if self.budget_bytes is not None and not self.budget_bytes >= 0:
            raise InvalidOptions(f"budget_bytes is {self.budget_bytes}; it must be 0 or more")
        if self.attempts < 0:
            raise InvalidOptions(f"attempts is {self.attempts}; it must be 0 or more")


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
    """

    zero_moves: ReplanPoint
    from_scratch: ReplanPoint | None
    pareto: tuple[ReplanPoint, ...]
    chosen: ReplanPoint


class ReplanProgress(Protocol):
    """Called for every answer that no earlier one beats in both flow and bytes."""

    def __call__(self, point: ReplanPoint, /) -> None: ...


def zero_moves(problem: Problem, running: Placement, *, options: PlanOptions) -> ReplanPoint:
    """The running placement on the changed problem: new flow, same layers.

    Layers that no longer fit are dropped; pins that are not held yet are moves, which it makes.
    Raises InvalidRules and ModelDoesNotFit.
    """
    check_rules(problem, options.rules)
    restricted = restricted_problem(problem, options.rules)
    return _Front(restricted, running, options=options, elapsed=lambda: 0.0).point(
        conform(restricted, running, options.rules), method=ZERO_MOVES
    )


def replan(
    problem: Problem,
    running: Placement,
    *,
    options: ReplanOptions,
    progress: ReplanProgress,
    cancel: CancelToken,
    clock: Callable[[], float] = time.monotonic,
) -> Replan:
    """The best answers found in time or until `cancel`, the zero-move answer among them.

    Raises InvalidRules, ModelDoesNotFit, FlowCheckFailed.
    """
    started_s = clock()
    check_rules(problem, options.plan.rules)
    problem = restricted_problem(problem, options.plan.rules)
    options = replace(options, plan=replace(options.plan, rules=options.plan.rules.once_restricted))
    front = _Front(
        problem, running, options=options.plan, elapsed=lambda: clock() - started_s, hear=progress
    )
    kept = conform(problem, running, options.plan.rules)
    unmoved = front.offer(kept, method=ZERO_MOVES)
    around = _Around(problem, running, kept, options=options, front=front)
    around.repair()
    fresh = _from_scratch(problem, front, options=options, cancel=cancel)
    around.search(fresh, should_stop=lambda: cancel.is_cancelled() or front.is_late(options))
    pareto = front.pareto()
    within = [point for point in pareto if _is_within(point, options.budget_bytes)]
    for point in pareto:
        check_flow(point.flow, problem=problem)
    return Replan(
        zero_moves=unmoved,
        from_scratch=fresh,
        pareto=pareto,
        chosen=within[-1] if within else unmoved,
    )


class _Front:
    """All answers that none beats, by exact flow and bytes."""

    def __init__(
        self,
        problem: Problem,
        running: Placement,
        *,
        options: PlanOptions,
        elapsed: Callable[[], float],
        hear: ReplanProgress = lambda _: None,
    ) -> None:
        self._problem = problem
        self.running = running
        self._options = options
        self._elapsed = elapsed
        self._hear = hear
        self._points: list[ReplanPoint] = []

    def is_late(self, options: ReplanOptions) -> bool:
        return self._elapsed() >= options.time_limit_s

    def left_s(self, options: ReplanOptions) -> float:
        return options.time_limit_s - self._elapsed()

    def flow_of(self, placement: Placement) -> Flow:
        return max_flow(
            self._problem,
            placement,
            partial_inference=self._options.partial_inference,
            max_hops=self._options.rules.max_hops,
        )

    def point(self, placement: Placement, *, method: str) -> ReplanPoint:
        return ReplanPoint(
            placement=placement,
            flow=self.flow_of(placement),
            moved_bytes=moved_layers(self.running, placement) * self._problem.model.bytes_per_layer,
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

    def best_within(self, budget_bytes: float) -> ReplanPoint | None:
        within = [point for point in self._points if _is_within(point, budget_bytes)]
        return max(within, key=lambda point: point.flow_tokens_per_s, default=None)

    def cheapest_from(self, flow_tokens_per_s: float) -> ReplanPoint | None:
        """The answer of fewest bytes with that flow or more."""
        enough = [p for p in self._points if p.flow_tokens_per_s >= flow_tokens_per_s]
        return min(enough, key=lambda point: point.moved_bytes, default=None)

    def pareto(self) -> tuple[ReplanPoint, ...]:
        return tuple(sorted(self._points, key=lambda point: point.moved_bytes))


class _Around:
    """The search around the running placement."""

    def __init__(
        self,
        problem: Problem,
        running: Placement,
        kept: Placement,
        *,
        options: ReplanOptions,
        front: _Front,
    ) -> None:
        self._problem = problem
        self._running = running
        self._kept = kept
        self._options = options
        self._front = front
        self._annealing = RangeAnnealing(problem, running, rules=options.plan.rules)
        # Links, hops or whole ranges took flow from an annealed end that its coverage promised.
        self._coverage_misleads = not options.plan.partial_inference

    def repair(self) -> None:
        """A first answer that carries flow when the zero-move one carries none."""
        running_flow = self._front.flow_of(self._kept).value_tokens_per_s
        target = _REPAIR_SHARE * knapsack_bound_tokens_per_s(self._problem)
        ends = [
            self._annealing.attempt(
                self._kept,
                target_tokens_per_s=max(running_flow, target),
                budget_layers=self._problem.model.num_layers,
                hotness=hotness,
                moves=_REPAIR_MOVES,
                seed=self._options.plan.seed,
            )
            for hotness in _HOTNESS[:2]
        ]
        for end in ends:
            self._front.offer(end, method=ANNEALED)

    def search(self, fresh: ReplanPoint | None, *, should_stop: Callable[[], bool]) -> None:
        """By turns raise the flow within a budget and lower the bytes of a flow, until both rest.

        The second finds most: from a good placement that moves too much, the way down is short.
        """
        goal = self._goal(fresh)
        budgets = [
            _BudgetSearch(budget_layers=layers, goal_tokens_per_s=goal)
            for layers in self._budgets(fresh)
        ]
        goals = [_GoalSearch(goal_tokens_per_s=share * goal) for share in _GOAL_SHARES]
        for number in range(self._options.attempts):
            for search in budgets:
                if not search.is_done and not should_stop():
                    self._attempt(search, number=number, fresh=fresh)
            for goal_search in goals:
                if not goal_search.is_done and not should_stop():
                    self._load_less(goal_search, number=number)

    def _load_less(self, search: "_GoalSearch", *, number: int) -> None:
        cheapest = self._front.cheapest_from(search.goal_tokens_per_s)
        if cheapest is None or cheapest.moved_bytes == 0:
            search.is_done = True
            return
        layers = round(cheapest.moved_bytes / self._problem.model.bytes_per_layer)
        end = self._annealing.attempt(
            self._kept if number % 3 == 2 else cheapest.placement,
            target_tokens_per_s=search.goal_tokens_per_s * (1 + _LEAST_STEP / 2),
            budget_layers=layers - 1,
            hotness=_COOL_HOTNESS[number // 3 % len(_COOL_HOTNESS)],
            moves=_MOVES // 3,
            seed=self._options.plan.seed + number,
        )
        is_cheaper = moved_layers(self._running, end) < layers
        if is_cheaper and coverage_tokens_per_s(self._problem, end) >= search.goal_tokens_per_s:
            self._front.offer(end, method=ANNEALED)
        search.learn(cheapest, self._front.cheapest_from(search.goal_tokens_per_s))

    def _attempt(self, search: "_BudgetSearch", *, number: int, fresh: ReplanPoint | None) -> None:
        budget_bytes = search.budget_layers * self._problem.model.bytes_per_layer
        before = self._front.best_within(budget_bytes)
        starts = [self._kept]
        if before is not None:
            starts.append(before.placement)
        if fresh is not None:
            starts.append(fresh.placement)
        end = self._annealing.attempt(
            starts[number // len(_HOTNESS) % len(starts)],
            target_tokens_per_s=search.target_above(before),
            budget_layers=search.budget_layers,
            hotness=_HOTNESS[number % len(_HOTNESS)],
            moves=_MOVES,
            seed=self._options.plan.seed + number,
        )
        coverage = coverage_tokens_per_s(self._problem, end)
        if before is None or coverage > before.flow_tokens_per_s:
            flow = self._front.offer(end, method=ANNEALED).flow_tokens_per_s
            self._coverage_misleads |= flow < coverage * (1 - _MISLED_SHARE)
        if self._coverage_misleads:
            self._climb(self._front.best_within(budget_bytes), search, number=number)
        search.learn(before, self._front.best_within(budget_bytes))

    def _climb(self, best: ReplanPoint | None, search: "_BudgetSearch", *, number: int) -> None:
        for better in climb(
            self._problem,
            self._running,
            best.placement if best is not None else self._kept,
            rules=self._options.plan.rules,
            budget_layers=search.budget_layers,
            flow_of=lambda placement: self._front.flow_of(placement).value_tokens_per_s,
            tries=_CLIMB_TRIES,
            seed=self._options.plan.seed + number,
        ):
            self._front.offer(better, method=CLIMBED)

    def _goal(self, fresh: ReplanPoint | None) -> float:
        known = self._front.pareto()
        flows = [point.flow_tokens_per_s for point in known]
        return max([*flows, fresh.flow_tokens_per_s if fresh is not None else 0.0])

    def _budgets(self, fresh: ReplanPoint | None) -> list[int]:
        bytes_per_layer = self._problem.model.bytes_per_layer
        if fresh is not None:
            whole = round(fresh.moved_bytes / bytes_per_layer)
        else:
            whole = self._problem.model.num_layers
        ladder = {max(1, int(whole * share)) for share in _LADDER}
        if self._options.budget_bytes is not None:
            asked = int(self._options.budget_bytes / bytes_per_layer)
            return [asked, *sorted(layers for layers in ladder if layers < asked)]
        return sorted(ladder)


@dataclass(slots=True, kw_only=True)
class _BudgetSearch:
    """One budget's target: between what is reached and the goal, nearer after every failure."""

    budget_layers: int
    goal_tokens_per_s: float
    step: float = 1.0
    is_done: bool = False

    def target_above(self, best: ReplanPoint | None) -> float:
        reached = best.flow_tokens_per_s if best is not None else 0.0
        goal = max(self.goal_tokens_per_s, reached * (1 + 4 * _LEAST_STEP))
        return reached + (goal - reached) * self.step

    def learn(self, before: ReplanPoint | None, after: ReplanPoint | None) -> None:
        gained = after is not None and (
            before is None or after.flow_tokens_per_s > before.flow_tokens_per_s * (1 + 1e-6)
        )
        self.step = 1.0 if gained else self.step * 0.7
        self.is_done = self.step < _LEAST_STEP


@dataclass(slots=True, kw_only=True)
class _GoalSearch:
    """One flow whose bytes shall fall; rests after many failures."""

    goal_tokens_per_s: float
    failures: int = 0
    is_done: bool = False

    def learn(self, before: ReplanPoint, after: ReplanPoint | None) -> None:
        fell = after is not None and after.moved_bytes < before.moved_bytes
        self.failures = 0 if fell else self.failures + 1
        self.is_done = self.failures >= _PATIENCE


def _from_scratch(
    problem: Problem, front: _Front, *, options: ReplanOptions, cancel: CancelToken
) -> ReplanPoint | None:
    if cancel.is_cancelled() or front.is_late(options):
        return None
    plan_options = replace(
        options.plan,
        time_limit_s=min(options.plan.time_limit_s, front.left_s(options) * _SCRATCH_SHARE),
    )
    try:
        plan = compute_plan(problem, options=plan_options, progress=lambda _: None, cancel=cancel)
    except NoPlacementFound:
        return None
    fresh = front.offer(plan.placement, method=FROM_SCRATCH)
    front.offer(
        aligned_to(problem, plan.placement, front.running, rules=options.plan.rules),
        method=ALIGNED,
    )
    return fresh


def _is_as_good(one: ReplanPoint, other: ReplanPoint) -> bool:
    return (
        one.flow_tokens_per_s >= other.flow_tokens_per_s * (1 - 1e-9)
        and one.moved_bytes <= other.moved_bytes
    )


def _is_within(point: ReplanPoint, budget_bytes: float | None) -> bool:
    return budget_bytes is None or point.moved_bytes <= budget_bytes
