"""The search around a running placement: more flow within few bytes, fewer bytes for much flow."""

from dataclasses import dataclass, replace

from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.capacity import coverage_tokens_per_s
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.placers.budgeted_moves import climb
from planner.placers.range_annealing import RangeAnnealing, links_that_may_bind
from planner.placers.stop import Stop
from planner.planning import NoPlacementFound, compute_plan
from planner.replanning.answers import Front, LeastBound, ReplanPoint
from planner.replanning.by_stages import ByStages
from planner.replanning.options import ReplanOptions
from planner.tuning.replanning import ReplanAroundTuning as tuned

ANNEALED = "annealed"
CLIMBED = "climbed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Parameters of one annealing: indices of a start and a hotness, and whether it is short."""

    start: int
    hotness: int
    is_short: bool


def way_of(turn: int, *, num_hotness: int, num_starts: int) -> Way:
    """The way of an annealing by its number: one in three is short.

    Over three times `num_hotness` * `num_starts` turns every start meets every hotness, once short
    and twice long.
    """
    cycle, pair = divmod(turn, num_hotness * num_starts)
    start, hotness = divmod(pair, num_hotness)
    return Way(start=start, hotness=hotness, is_short=(pair + cycle) % 3 == 0)


class Around:
    """The search around the running placement, of which `kept` is still valid."""

    def __init__(
        self, problem: Problem, kept: Placement, *, options: ReplanOptions, front: Front
    ) -> None:
        self._problem = problem
        self._kept = kept
        self._options = options
        self._front = front
        may_bind = links_that_may_bind(problem, partial_inference=options.plan.partial_inference)
        # Where links may bind, annealing with links has no partial inference: so use both in turn.
        self._annealings = [
            (RangeAnnealing(problem, front.running, rules=options.plan.rules, links=links), hotness)
            for links, hotness in (
                [(None, tuned.HOTNESS)]
                if may_bind is None
                else [(may_bind, tuned.HOTNESS_ON_LINKS), (None, tuned.HOTNESS)]
            )
        ]
        self._long_effort = max(
            1.0, min(tuned.LONG_EFFORT_PER_S * options.time_limit_s, tuned.MOST_EFFORT)
        )
        # Links, hops or whole ranges took flow from an annealed end that its coverage promised.
        self._coverage_misleads = False

    def repair(self) -> None:
        """A first answer that carries flow when the zero-move one carries none."""
        target = tuned.REPAIR_SHARE * knapsack_bound_tokens_per_s(self._problem)
        ends = [
            annealing.attempt(
                self._kept,
                target_tokens_per_s=max(self._front.value_of(self._kept), target),
                budget_layers=self._problem.model.num_layers,
                hotness=hotness,
                effort=tuned.REPAIR_EFFORT,
                seed=self._options.plan.seed,
            )
            for annealing, _ in self._annealings
            for hotness in tuned.REPAIR_HOTNESS
        ]
        for end in ends:
            self._front.offer(end, method=ANNEALED)

    def from_scratch(self, stop: Stop, bound: LeastBound) -> list[Placement]:
        """The best found without regard to what runs."""
        plan = self._options.plan
        limit_s = min(plan.time_limit_s, stop.left_s * tuned.SCRATCH_SHARE)
        scratch = replace(plan, time_limit_s=limit_s)
        try:
            found = compute_plan(
                self._problem, options=scratch, progress=bound, cancel=stop, clock=stop.clock
            )
        except NoPlacementFound:
            return []
        return [found.placement]

    def offer(self, placement: Placement, *, method: str) -> ReplanPoint:
        return self._front.offer(placement, method=method)

    def search(self, fresh: ReplanPoint | None, bound: LeastBound, stop: Stop) -> None:
        """Search by programs over stages; then by two annealings in turn, until both rest.

        One turn raises the flow within a budget, the other lowers the bytes of a flow. The second
        finds most: from a good placement that moves too much, the way down is short.
        """
        budgets_layers = self._front.budgets(fresh, self._options.budget_bytes)
        if not stop.is_over():
            ByStages(
                self._problem,
                options=self._options,
                front=self._front,
                upper_bound_tokens_per_s=bound.tokens_per_s,
            ).search(
                stop.within(stop.left_s * tuned.STAGES_SHARE), budget_layers=min(budgets_layers)
            )
        budgets = [
            _BudgetSearch(budget_layers=layers)
            for layers in self._front.budgets(fresh, self._options.budget_bytes)
        ]
        goals = [_GoalSearch(share=share) for share in tuned.GOAL_SHARES]
        for number in range(self._options.attempts):
            for search in budgets:
                if not search.is_done and not stop.is_over():
                    self._raise_flow(search, number=number, fresh=fresh)
            for goal_search in goals:
                if not goal_search.is_done and not stop.is_over():
                    self._load_less(goal_search, number=number)

    def decide(self, budget_bytes: float | None, stop: Stop) -> None:
        """Does nothing: without simulation the front's best answer is chosen."""

    def _load_less(self, search: "_GoalSearch", *, number: int) -> None:
        goal = search.share * self._front.most_value
        cheapest = self._front.cheapest_from(goal)
        if cheapest is None or cheapest.moved_bytes == 0:
            search.failures = tuned.PATIENCE
            return
        layers = self._front.layers_to_load(cheapest.placement)
        annealing, _ = self._annealings[number % len(self._annealings)]
        end = annealing.attempt(
            self._kept if number % 3 == 2 else cheapest.placement,
            target_tokens_per_s=goal * (1 + tuned.LEAST_GAIN / 2),
            budget_layers=layers - 1,
            hotness=tuned.COOL_HOTNESS[number // 3 % len(tuned.COOL_HOTNESS)],
            effort=tuned.GOAL_EFFORT,
            seed=self._options.plan.seed + number,
        )
        is_cheaper = self._front.layers_to_load(end) < layers
        if is_cheaper and min(coverage_tokens_per_s(self._problem, end)) >= goal:
            self._front.offer(end, method=ANNEALED)
        after = self._front.cheapest_from(goal)
        search.learn(after is not None and after.moved_bytes < cheapest.moved_bytes)

    def _raise_flow(
        self, search: "_BudgetSearch", *, number: int, fresh: ReplanPoint | None
    ) -> None:
        before = self._front.best_within(search.budget_layers)
        starts = [self._kept]
        if before is not None:
            starts.append(before.placement)
        if fresh is not None:
            starts.append(fresh.placement)
        reached, goal = 0.0 if before is None else before.flow_tokens_per_s, self._front.most_value
        is_close = before is not None and reached >= tuned.GOAL_SHARES[1] * goal
        turn, which = divmod(number, len(self._annealings))
        annealing, hotness = self._annealings[which]
        way = way_of(turn, num_hotness=len(hotness), num_starts=len(starts))
        end = annealing.attempt(
            starts[way.start],
            target_tokens_per_s=search.target_above(reached, goal_tokens_per_s=goal),
            budget_layers=search.budget_layers,
            hotness=hotness[way.hotness],
            effort=1.0 if way.is_short or is_close else self._long_effort,
            seed=self._options.plan.seed + number,
        )
        coverage = min(coverage_tokens_per_s(self._problem, end))
        if before is None or coverage > reached:
            flow = self._front.offer(end, method=ANNEALED).flow_tokens_per_s
            self._coverage_misleads |= flow < coverage * (1 - tuned.MISLED_SHARE)
        if self._coverage_misleads:
            self._climb(search, number=number)
        after = self._front.best_within(search.budget_layers)
        search.learn(
            after is not None and (before is None or after.flow_tokens_per_s > reached * (1 + 1e-6))
        )

    def _climb(self, search: "_BudgetSearch", *, number: int) -> None:
        best = self._front.best_within(search.budget_layers)
        for better in climb(
            self._problem,
            self._front.running,
            best.placement if best is not None else self._kept,
            rules=self._options.plan.rules,
            budget_layers=search.budget_layers,
            value_of=self._front.value_of,
            tries=tuned.CLIMB_TRIES,
            seed=self._options.plan.seed + number,
        ):
            self._front.offer(better, method=CLIMBED)


@dataclass(slots=True, kw_only=True)
class _Search:
    """A search that ends after many failures."""

    failures: int = 0

    @property
    def is_done(self) -> bool:
        return self.failures >= tuned.PATIENCE

    def learn(self, has_gained: bool) -> None:
        self.failures = 0 if has_gained else self.failures + 1


@dataclass(slots=True, kw_only=True)
class _BudgetSearch(_Search):
    """Raises the flow of one budget towards the goal."""

    budget_layers: int

    def target_above(self, reached: float, *, goal_tokens_per_s: float) -> float:
        """The next of the goal's shares; where that fails, every third time only half as far."""
        least = reached * (1 + tuned.LEAST_GAIN)
        shares = [share * goal_tokens_per_s for share in tuned.GOAL_SHARES]
        following = next((flow for flow in shares if flow > least), reached * (1 + tuned.STEP))
        return (reached + following) / 2 if self.failures % 3 == 2 else following


@dataclass(slots=True, kw_only=True)
class _GoalSearch(_Search):
    """Reduces the bytes of one share of the best flow."""

    share: float
