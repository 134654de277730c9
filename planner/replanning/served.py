"""The search around a running placement for what is served: stages annealed on the estimate.

Every component of a placement is annealed by itself, with the idle nodes, while a layer to load
costs a share of what is served and one beyond the budget more. A component that lacks layers since
a node was lost begins below 0 and is repaired first. What is not whole stages, or has pinned nodes,
changes node by node. The best by estimate are simulated to choose one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from planner.capacity import whole_components
from planner.domain.placement import Placement, together
from planner.domain.plan_forecast import PlanForecast
from planner.domain.problem import Problem
from planner.objectives.contest import Contest
from planner.objectives.search import distinct
from planner.objectives.stage_search import Loading, Stages, StageSearch
from planner.objectives.trial import Trial, Trials
from planner.placers.budgeted_moves import climb
from planner.placers.stop import Stop
from planner.planning import placements_to_serve
from planner.replanning.answers import ZERO_MOVES, Front, LeastBound, ReplanPoint
from planner.replanning.options import ReplanOptions
from planner.tuning.replanning import ReplanServedTuning as tuned

ANNEALED = "stages by estimate"
CLIMBED = "climbed"
SIMULATED = "stages by simulation"

Start: TypeAlias = Literal["kept", "best", "good"]
"""What still stands, the best within the budget, or the cheapest that serves nearly the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Parameters of one annealing: start, temperature, and the share of the score a layer costs."""

    start: Start
    hotness: float
    charge: float


# Within few bytes there are many local optima, in which longer annealings end as well: so several
# starts first.
_WAYS = (
    Way(start="kept", hotness=0.03, charge=0.0),
    *[Way(start="kept", hotness=0.05, charge=0.0)] * 2,
    Way(start="best", hotness=0.02, charge=1e-4),
    Way(start="best", hotness=0.005, charge=0.0),
    Way(start="good", hotness=0.1, charge=0.0),
    Way(start="good", hotness=0.02, charge=1e-3),
)


class AroundServed:
    """The search around the running placement, of which `kept` is still valid."""

    def __init__(
        self,
        problem: Problem,
        kept: Placement,
        *,
        options: ReplanOptions,
        trials: Trials,
        front: Front,
    ) -> None:
        self._problem = problem
        self._options = options
        self._rules = options.plan.rules
        self._seed = options.plan.seed
        self._trials = trials
        self._front = front
        self._kept = kept
        self._searches: dict[frozenset[str], StageSearch] = {}
        self._contest = Contest(trials, seed=self._seed)
        self._annealings = 0
        self._offered = [front.point(kept, method=ZERO_MOVES)]

    def repair(self) -> None:
        """Offer first answers: components that are still complete, and repaired ones."""
        whole = whole_components(self._problem, self._kept)
        self.offer(whole, method=ANNEALED)
        loading = Loading(budget_layers=self._problem.model.num_layers)
        for start in {id(one): one for one in (self._kept, whole)}.values():
            for number in range(len(start.parts)):
                self._anneal(
                    start,
                    number,
                    loading,
                    hot=tuned.REPAIR_HOTNESS,
                    moves=tuned.REPAIR_MOVES_PER_NODE * len(self._problem.cluster.nodes),
                )

    def from_scratch(self, stop: Stop, bound: LeastBound) -> list[Placement]:
        """The best few by estimate, found without regard to what runs."""
        return placements_to_serve(
            self._problem,
            self._options.plan,
            self._trials,
            stop=stop.within(stop.left_s * tuned.SCRATCH_SHARE),
            progress=bound,
        )[: tuned.OFFERED]

    def offer(self, placement: Placement, *, method: str) -> ReplanPoint:
        """An answer to begin at, too."""
        point = self._front.offer(placement, method=method)
        self._offered.append(point)
        return point

    def search(self, fresh: ReplanPoint | None, bound: LeastBound, stop: Stop) -> None:
        """Raise what is served within the budget of layers, until rounds in a row find nothing.

        Annealings need all the time there is; answers of fewer bytes are found on the way.
        """
        budget = max(self._front.budgets(fresh, self._options.budget_bytes))
        deciding_s = min((1 - tuned.LEAST_SEARCH_SHARE) * stop.left_s, self._expected_decision_s())
        stop = stop.earlier(deciding_s)
        idle = 0
        for number in range(self._options.attempts):
            if idle >= tuned.PATIENCE:
                return
            way = _WAYS[number % len(_WAYS)]
            effort = min(tuned.MOST_EFFORT, 2 ** (number // len(_WAYS)))
            before, nodes = self._value_within(budget), len(self._problem.cluster.nodes)
            start = self._start(way.start, budget)
            for part in range(len(start.parts)):
                if stop.is_over():
                    return
                self._anneal(
                    start,
                    part,
                    Loading(budget_layers=budget, charge=way.charge),
                    hot=way.hotness,
                    moves=effort * min(tuned.MOVES_PER_NODE * nodes, tuned.MOVES_BY_NODES // nodes),
                )
            idle = 0 if self._value_within(budget) > before * (1 + tuned.LEAST_GAIN) else idle + 1

    def _expected_decision_s(self) -> float:
        """About how long `decide` would like to take with what is known now."""
        best = max(self._offered, key=lambda point: point.value)
        if best.value <= 0:
            return 0.0
        return self._contest.expected_s(self._trials.estimated(best.placement, placer=""), ())

    def decide(
        self, budget_bytes: float | None, stop: Stop
    ) -> tuple[ReplanPoint, PlanForecast] | None:
        """The best within the budget as simulated; None where nothing within it serves anything."""
        model = self._problem.model
        budget_layers = len(self._problem.cluster.nodes) * model.num_layers
        if budget_bytes is not None:
            budget_layers = int(budget_bytes / model.bytes_per_layer)
        within = [
            point
            for point in self._offered
            if point.value > 0 and self._front.layers_to_load(point.placement) <= budget_layers
        ]
        if not within:
            return None
        within.sort(key=lambda point: -point.value)
        worth = tuned.WORTH_A_SIMULATION * within[0].value
        method_of = {id(point.placement): point.method for point in within}

        def trials_of(points: Iterable[ReplanPoint]) -> list[Trial]:
            tried = [self._trials.estimated(one.placement, placer=one.method) for one in points]
            return distinct(self._trials, tried)

        # The running plan may have been chosen by simulation: near it estimates are less reliable.
        nearest = sorted(within, key=lambda point: (point.moved_bytes, -point.value))
        ranked = trials_of(point for point in within[: 4 * tuned.SIMULATED] if point.value >= worth)
        outcome = self._contest.decide(
            ranked[: tuned.SIMULATED],
            trials_of(nearest[: tuned.NEAREST]),
            neighbours=lambda trial: self._neighbours(trial, budget_layers),
            stop=stop,
        )
        trial = outcome.trial
        method = method_of.get(id(trial.placement), SIMULATED)
        point = self._front.point(trial.placement, method=method)
        return point, self._trials.forecast(trial, outcome.figures)

    def _value_within(self, budget_layers: int) -> float:
        best = self._front.best_within(budget_layers)
        return 0.0 if best is None else best.value

    def _start(self, start: Start, budget_layers: int) -> Placement:
        point = None
        if start == "best":
            point = self._front.best_within(budget_layers)
        elif start == "good":
            point = self._front.cheapest_from(tuned.GOAL_SHARE * self._front.most_value)
        return self._kept if point is None or point.value <= 0 else point.placement

    def _anneal(
        self, start: Placement, number: int, loading: Loading, *, hot: float, moves: int
    ) -> None:
        """Offer what annealing of one component finds, the others as they are."""
        found = self._of_component(start, number)
        if found is None:
            if number == 0:
                self._climb(start, loading.budget_layers)
            return
        search, stages, others = found
        self._annealings += 1
        best = search.annealed(
            stages,
            moves=moves,
            hot=hot,
            seed=self._seed * 1009 + self._annealings,
            loading=self._left(loading, others),
        )
        if best.score > 0 and best.best != stages:
            self.offer(together([*others, search.placement_of(best.best)]), method=ANNEALED)

    def _of_component(
        self, placement: Placement, number: int
    ) -> tuple[StageSearch, Stages, list[Placement]] | None:
        """The search over a component and idle nodes, its stages, and the other components.

        None where these are no stages, or nodes are pinned.
        """
        others = [part for at, part in enumerate(placement.parts) if at != number]
        taken = {name for part in others for name in part.layers}
        names = frozenset(node.name for node in self._problem.cluster.nodes) - taken
        if self._rules.pinned:
            return None
        if names not in self._searches:
            self._searches[names] = StageSearch(
                self._trials.estimator,
                names=sorted(names),
                rules=self._rules,
                goal=self._trials.goal,
                running=self._front.running,
            )
        search = self._searches[names]
        stages = search.stages_of(placement.parts[number])
        return None if stages is None else (search, stages, others)

    def _left(self, loading: Loading, others: Iterable[Placement]) -> Loading:
        """`loading` with the part of the budget that other components leave."""
        spent = sum(self._front.layers_to_load(part) for part in others)
        return Loading(budget_layers=max(0, loading.budget_layers - spent), charge=loading.charge)

    def _climb(self, start: Placement, budget_layers: int) -> None:
        self._annealings += 1
        for better in climb(
            self._problem,
            self._front.running,
            start,
            rules=self._rules,
            budget_layers=budget_layers,
            value_of=self._front.value_of,
            tries=tuned.CLIMB_TRIES,
            seed=self._seed * 1009 + self._annealings,
        ):
            self.offer(better, method=CLIMBED)

    def _neighbours(self, trial: Trial, budget_layers: int) -> Iterator[Trial]:
        """Stages that short walks reach within the budget, estimated nearly as good."""
        if not self._trials.goal.climbs:
            return
        parts = len(trial.placement.parts)
        for number in range(tuned.WALKS):
            found = self._of_component(trial.placement, number % parts)
            if found is None:
                return
            search, stages, others = found
            self._annealings += 1
            walked = search.walked(
                stages,
                moves=tuned.WALK_MOVES[number % len(tuned.WALK_MOVES)],
                hot=tuned.WALK_HOTNESS,
                seed=self._seed * 1009 + self._annealings,
                loading=self._left(Loading(budget_layers=budget_layers), others),
            )
            placement = together([*others, search.placement_of(walked)])
            if walked == stages or self._front.layers_to_load(placement) > budget_layers:
                continue
            neighbour = self._trials.estimated(placement, placer=SIMULATED)
            if neighbour.value >= tuned.WORTH_A_SIMULATION * trial.value:
                yield neighbour
