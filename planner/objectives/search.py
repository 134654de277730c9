"""The search for an objective other than flow: estimates to search by, simulations to decide by.

1. Candidates from elsewhere (baselines, what ran before, the largest flow) are estimated.
2. Arenas: the whole cluster, and every part of every way to divide it into components. Each is
   seeded by the stage patterns of a sweep of hop limits and annealed on the estimate, in rounds of
   growing length, until rounds in a row find nothing better. With pins there is one arena, of the
   free nodes, and stages laid around the pins are candidates too.
3. The best placements by estimate, and every baseline, are simulated under the policy, and
   neighbours of the leader while there is time (`planner.objectives.contest`). So the answer is
   below no baseline under that policy.

Rounds count moves, not seconds: the clock only cuts them off.
"""

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from planner.capacity import allowed_limits
from planner.domain.errors import PlannerError
from planner.domain.placement import LayerRange, Placement, together
from planner.domain.plan_forecast import PlanForecast
from planner.domain.problem import Problem
from planner.max_flow import mean_hops
from planner.objectives.arena import Arena
from planner.objectives.contest import Contest
from planner.objectives.partitions import partitions
from planner.objectives.trial import Trial, Trials
from planner.placers.around_pins import AroundPins
from planner.placers.base import StopReason
from planner.placers.board import Board
from planner.placers.stop import Stop
from planner.tuning.served import ServedSearchTuning as tuned

PLACER = "stages by estimate"
COMPONENTS = "components by estimate"
CLIMBED = "stages by simulation"


_Stage: TypeAlias = tuple[int, frozenset[tuple[tuple[str, str], int]]]
_Shape: TypeAlias = Counter[frozenset[tuple[_Stage, int]]]
_Key: TypeAlias = tuple[tuple[tuple[str, int, int], ...], frozenset[frozenset[str]]]


class LimitsNotKept(PlannerError):
    """No plan that was found keeps to the latency limits at any rate that was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The placement to take, and what it is forecast to deliver."""

    trial: Trial
    forecast: PlanForecast


class ServingSearch:
    """Collects candidates for `Trials.goal`, then decides."""

    def __init__(self, board: Board, trials: Trials, *, seed: int) -> None:
        """What is better by its estimate goes to the board."""
        self.board = board
        self._trials = trials
        self._rules = board.options.rules
        self._seed = seed
        self._tried: dict[_Key, Trial] = {}
        self._guards: list[Trial] = []
        self.best: Trial | None = None
        self._whole: Arena | None = None
        self._contest = Contest(trials, seed=seed)

    def offer(
        self,
        placement: Placement,
        *,
        placer: str,
        is_guard: bool = False,
        bound_tokens_per_s: float = math.inf,
    ) -> Trial:
        """Estimate it; a guard is simulated whatever its estimate, and goes by its own name."""
        ranges = ((name, held.first, held.end) for name, held in placement.layers.items())
        key = (tuple(sorted(ranges)), frozenset(placement.components))
        if key not in self._tried:
            self._tried[key] = self._trials.estimated(placement, placer=placer)
        elif self._tried[key].placer != placer and is_guard:
            self._tried[key] = replace(self._tried[key], placer=placer)
        trial = self._tried[key]
        if is_guard and trial not in self._guards:
            self._guards.append(trial)
        if trial.value > 0 and (self.best is None or trial.value > self.best.value):
            self.best = trial
            self.board.take(
                placement, trial.score, by=placer, bound_tokens_per_s=bound_tokens_per_s
            )
        return trial

    def run(self, stop: Stop) -> StopReason:
        """Search; returns why it ended."""
        limit_s = stop.left_s
        divisions = self._divisions()
        self._whole = divisions[0][0]
        if self._rules.pinned:
            self._search_around_pins(stop.within(tuned.PINS_SHARE_OF_TIME * limit_s))
        seeding = stop.within(limit_s * tuned.SEEDING_SHARE_OF_TIME)
        arenas_left = sum(map(len, divisions))
        reached = []
        for division in divisions:
            for arena in division:
                arena.seed_by_patterns(seeding, share_s=seeding.left_s / arenas_left)
                arenas_left -= 1
            reached.append(self._offer_division(division, stop))
        idle = 0
        for number in range(tuned.MOST_ROUNDS):
            before = self.best.value if self.best else 0.0
            is_short = stop.left_s < tuned.SHORT_OF_TIME * limit_s
            if number >= (1 if is_short else tuned.DIVIDED_AFTER_ROUNDS):
                divisions = [
                    division
                    for division, value in zip(divisions, reached, strict=True)
                    if len(division) == 1 or value >= tuned.HOPELESS * before
                ]
            if stop.is_over() or idle >= tuned.IDLE_ROUNDS or not divisions:
                break
            divisions.sort(key=lambda division: -len(division))  # small arenas take less time
            reached = []
            for at, division in enumerate(divisions):
                own = stop.within(stop.left_s / (len(divisions) - at))
                for arena in division:
                    self._anneal(arena, number, own)
                reached.append(self._offer_division(division, stop))
            after = self.best.value if self.best else 0.0
            idle = 0 if after > before * (1 + 1e-3) else idle + 1
        if stop.is_cancelled():
            return "cancelled"
        return "time limit" if stop.left_s <= 0 else "heuristic"

    def decide(self, stop: Stop) -> Decision | None:
        """Simulate the most promising; None where no candidate serves anything.

        Raises LimitsNotKept.
        """
        ranked = self.ranked()
        if not ranked:
            return None
        guards = [guard for guard in self._guards if guard.value > 0]
        outcome = self._contest.decide(
            ranked[: tuned.SIMULATED], guards, neighbours=self._neighbours, stop=stop
        )
        if self._trials.goal.has_limits and outcome.figures is None:
            self._check_limits(outcome.trial)
        return Decision(
            trial=outcome.trial,
            forecast=self._trials.forecast(outcome.trial, outcome.figures),
        )

    def ranked(self) -> list[Trial]:
        """By estimate, the best first, without those that serve nothing or repeat another."""
        ranked = sorted(self._tried.values(), key=lambda trial: trial.value, reverse=True)
        ranked = [trial for trial in ranked[: tuned.COMPARED] if trial.value > 0]
        ranked.sort(key=lambda trial: -trial.value * (1 - tuned.PER_HOP * mean_hops(trial.flow)))
        return distinct(self._trials.problem, ranked)

    def _check_limits(self, best: Trial) -> None:
        """`best` was not simulated, or not within the limits. Raises LimitsNotKept."""
        goal, miss = self._trials.goal, self._trials.nearest_miss
        if miss is None and best.keeps_limits:
            return  # time allowed no simulation, and by estimate there is a rate
        limits = " and ".join(
            f"{name} of at most {limit_s:g} s"
            for name, limit_s in (("TTFT", goal.ttft_limit_s), ("TPOT", goal.tpot_limit_s))
            if limit_s < math.inf
        )
        if miss is None:
            reached = (
                f"estimated without limits, the best ({best.placer}) has a mean TTFT of "
                f"{best.estimate.ttft_s:.3g} s and TPOT of {best.estimate.tpot_s:.3g} s"
            )
        else:
            over = [
                name
                for name, seconds, limit_s in (
                    ("TTFT", miss.ttft_s, goal.ttft_limit_s),
                    ("TPOT", miss.tpot_s, goal.tpot_limit_s),
                )
                if seconds > limit_s
            ]
            reached = (
                f"the nearest ({miss.placer}) misses {' and '.join(over)}: at "
                f"{miss.requests_per_s:.2g} requests/s its {goal.limit_percentile} TTFT is "
                f"{miss.ttft_s:.3g} s and TPOT {miss.tpot_s:.3g} s"
            )
        raise LimitsNotKept(
            f"no plan found keeps a {goal.limit_percentile} {limits}; {reached}; raise the limit, "
            "allow fewer hops (max_hops), or give the search more time"
        )

    def expected_decision_s(self) -> float:
        """About how long `decide` would like to take with what is known now."""
        guards = [guard for guard in self._guards if guard.value > 0]
        if self.best is None:
            return 0.0
        return self._contest.expected_s(self.best, guards)

    def _neighbours(self, trial: Trial) -> Iterator[Trial]:
        """Stages that short walks reach from the trial's and that are estimated nearly as good."""
        arena = self._whole
        if arena is None or trial.placement.components or not self._trials.goal.climbs:
            return
        for placement in arena.walked_from(trial.placement, walks=tuned.WALKS):
            before = len(self._tried)
            found = self.offer(self._with_pins(placement), placer=CLIMBED)
            if len(self._tried) > before and found.value >= tuned.WORTH_A_SIMULATION * trial.value:
                yield found

    def _with_pins(self, placement: Placement) -> Placement:
        """Arenas know free nodes only; pinned ones join."""
        if not self._rules.pinned:
            return placement
        return Placement(layers={**placement.layers, **self._rules.pinned})

    def _divisions(self) -> list[list[Arena]]:
        problem = self._trials.problem
        whole = tuple(node.name for node in problem.cluster.nodes)
        divisions = []
        divided = [] if self._rules.pinned else partitions(problem)
        for number, partition in enumerate([(whole,), *divided]):
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

    def _offer_division(self, division: list[Arena], stop: Stop) -> float:
        """The best of every arena together; of the whole cluster's, the others it keeps too.

        Returns the best value of these, 0 if there are none.
        """
        if len(division) == 1:
            value = 0.0
            for placement in division[0].placements():
                offered = self.offer(self._with_pins(placement), placer=PLACER)
                value = max(value, offered.value)
                if stop.is_over():
                    break
            return value
        parts = [arena.best for arena in division]
        placed = [part for part in parts if part is not None]
        if len(placed) < 2:
            return 0.0
        return self.offer(together(placed), placer=COMPONENTS).value

    def _search_around_pins(self, stop: Stop) -> None:
        """Stages laid around the pins at several hop limits, then free nodes moved and exchanged.

        A free node moves to the layers of another one, pinned or not.
        """
        problem = self._trials.problem
        num_layers, nodes = problem.model.num_layers, len(problem.cluster.nodes)
        most = min(nodes, num_layers, self._rules.max_hops or nodes)
        for hops in sorted({max(1, round(most * share)) for share in tuned.HOP_SHARES}):
            around = AroundPins(problem, replace(self._rules, max_hops=hops))
            for order in around.first_orders():
                placement = around.laid(order, above_tokens_per_s=0.0)
                if placement is not None and not stop.is_over():
                    self.offer(placement, placer=PLACER)
        chance = random.Random(self._seed)  # noqa: S311 - a search, no secret
        most_of = {
            node.name: allowed_limits(problem, node.name, self._rules)
            for node in problem.cluster.nodes
            if node.name not in self._rules.pinned
        }
        idle = 0
        while self.best and most_of and idle < tuned.IDLE_MOVES * nodes and not stop.is_over():
            before = self.best
            layers = dict(before.placement.layers)
            name, other = chance.choice(list(most_of)), chance.choice(list(layers))
            moved = {name: layers[other]}
            if other in most_of and name in layers and chance.random() < tuned.EXCHANGED_SHARE:
                moved[other] = layers[name]
            if all(
                most_of[mover].allow(held, num_layers=num_layers) for mover, held in moved.items()
            ):
                self.offer(Placement(layers={**layers, **moved}), placer=PLACER)
            idle = 0 if self.best is not before else idle + 1

    def _anneal(self, arena: Arena, number: int, stop: Stop) -> None:
        """A round in slices, so that the clock and a cancel are heard."""
        left = tuned.MOVES_PER_NODE * 2**number * len(arena.names)
        while left > 0 and not stop.is_over():
            moves = min(left, tuned.MOVES_AT_ONCE)
            arena.anneal(moves=moves, hot=tuned.HOTNESS[number % len(tuned.HOTNESS)])
            left -= moves


def distinct(problem: Problem, trials: Iterable[Trial]) -> list[Trial]:
    """Without those whose estimate, flow and shape equal a better one's: the same plan by other
    names."""
    kept: list[Trial] = []
    shapes: list[_Shape] = []
    for trial in trials:
        shape = _shape(problem, trial.placement)
        if not any(
            shape == known
            and abs(trial.value - other.value) <= tuned.ALIKE * other.value
            and abs(trial.flow.value_tokens_per_s - other.flow.value_tokens_per_s)
            <= tuned.ALIKE * other.flow.value_tokens_per_s
            for other, known in zip(kept, shapes, strict=True)
        ):
            kept.append(trial)
            shapes.append(shape)
    return kept


def _shape(problem: Problem, placement: Placement) -> _Shape:
    """How often each component holds so many layers on nodes of these kinds, wherever they are."""
    stages: dict[tuple[int, LayerRange], Counter[tuple[str, str]]] = {}
    for name, held in placement.layers.items():
        node = problem.cluster.node(name)
        kinds = stages.setdefault((placement.component_of(name), held), Counter())
        kinds[node.compute_profile, node.region] += 1
    components: dict[int, Counter[_Stage]] = {}
    for (component, held), kinds in stages.items():
        stage = (len(held), frozenset(kinds.items()))
        components.setdefault(component, Counter())[stage] += 1
    return Counter(frozenset(component.items()) for component in components.values())
