"""The search for an objective other than flow: estimates to search by, simulations to decide by.

1. Candidates from elsewhere (baselines, what ran before, the largest flow) are estimated.
2. Arenas: the whole cluster, and the parts of every way to divide it into components. Each is
   seeded by the stage patterns of a sweep of hop limits and annealed on the estimate, in rounds of
   growing length, until rounds in a row find little; then from the seeds again. After each round
   the best components of all arenas and baselines that serve most together are one candidate
   (`planner.objectives.packing`), and arenas far below what their nodes serve in it are given up.
   With pins there is one arena, of the free nodes, and stages laid around the pins are candidates
   too.
3. The best placements by estimate, and every baseline that may serve more, are simulated under the
   policy, then neighbours of the leader while there is time (`planner.objectives.contest`). Of
   components those that serve most by simulation are put together again.

Rounds count moves, not seconds: the clock only cuts them off.
"""

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TypeAlias

from planner.capacity import allowed_limits
from planner.domain.errors import PlannerError
from planner.domain.placement import Placement
from planner.max_flow import mean_hops
from planner.objectives.arena import Arena
from planner.objectives.contest import Contest, Outcome
from planner.objectives.goal import Aim
from planner.objectives.packing import Packing
from planner.objectives.partitions import partitions
from planner.objectives.samples import Shape
from planner.objectives.trial import Trial, Trials
from planner.placers.around_pins import AroundPins
from planner.placers.base import StopReason
from planner.placers.board import Board
from planner.placers.stop import Stop
from planner.tuning.served import ServedSearchTuning as tuned

PLACER = "stages by estimate"
COMPONENTS = "components by estimate"
REPACKED = "components by simulation"
CLIMBED = "stages by simulation"


_Lengths: TypeAlias = tuple[int, ...]
_Key: TypeAlias = tuple[tuple[tuple[str, int, int], ...], frozenset[frozenset[str]]]


class LimitsNotKept(PlannerError):
    """No plan that was found meets the latency limits at any rate that was tried."""


class ServingSearch:
    """Collects candidates for `Trials.goal`, then decides."""

    def __init__(self, board: Board, trials: Trials, *, seed: int) -> None:
        """Plans that are better by their estimate are offered to the board."""
        self.board = board
        self._trials = trials
        self._rules = board.options.rules
        self._seed = seed
        self._tried: dict[_Key, Trial] = {}
        self._guards: list[Trial] = []
        self.best: Trial | None = None
        self._whole: Arena | None = None
        self._packing = Packing(trials.problem)
        # Whether what components serve apart adds up to what they do together.
        self._adds_up = trials.goal.aim is Aim.THROUGHPUT and not self._rules.pinned
        self._contest = Contest(trials, seed=seed)

    def offer(
        self,
        placement: Placement,
        *,
        placer: str,
        is_guard: bool = False,
        bound_tokens_per_s: float = math.inf,
    ) -> Trial:
        """Estimate a placement; a guard is simulated whatever its estimate, under its own name."""
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

    @property
    def _reached(self) -> float:
        return self.best.value if self.best else 0.0

    def run(self, stop: Stop) -> StopReason:
        """Search; returns why it ended."""
        limit_s = stop.left_s
        arenas = self._arenas()
        self._whole = arenas[0]
        if self._rules.pinned:
            self._search_around_pins(stop.within(tuned.PINS_SHARE_OF_TIME * limit_s))
        seeding = stop.within(limit_s * tuned.SEEDING_SHARE_OF_TIME)
        arenas.sort(key=lambda arena: len(arena.names))
        for number, arena in enumerate(arenas):
            arena.seed_by_patterns(
                stop, further=seeding.within(seeding.left_s / (len(arenas) - number))
            )
        self._offer_best(arenas, stop)
        arenas = [arena for arena in arenas if arena.names]  # none where every node is pinned
        rounds = self._anneal_from_seeds(arenas, stop, most_rounds=tuned.MOST_ROUNDS)
        idle, again = 0, stop.within(tuned.STARTS_SHARE_OF_TIME * limit_s)
        while arenas and idle < tuned.IDLE_STARTS and not again.is_over():
            before = self._reached
            self._anneal_from_seeds(arenas, again, most_rounds=rounds, idle_rounds=rounds)
            after = self._reached
            idle = 0 if after > before * (1 + tuned.WORTH_A_ROUND) else idle + 1
        self._offer_others()
        if stop.is_cancelled():
            return "cancelled"
        return "time limit" if stop.left_s <= 0 else "heuristic"

    def _anneal_from_seeds(
        self,
        arenas: list[Arena],
        stop: Stop,
        *,
        most_rounds: int,
        idle_rounds: int = tuned.IDLE_ROUNDS,
    ) -> int:
        """Anneal until so many rounds in a row find little; returns how many ran.

        Hopeless arenas leave the list.
        """
        for arena in arenas:
            arena.start()
        idle = 0
        for number in range(most_rounds):
            share = tuned.HOPELESS if number else tuned.HOPELESS_AT_FIRST
            arenas[:] = [
                one for one in arenas if one.score >= share * self._packing.worth(one.names)
            ]
            before = self._reached
            if not arenas or stop.is_over() or idle >= idle_rounds:
                return number
            per_node_s = (
                tuned.ROUND_SHARE_OF_TIME * stop.left_s / sum(len(one.names) for one in arenas)
            )
            for arena in arenas:
                self._anneal(arena, number, stop.within(per_node_s * len(arena.names)))
            self._offer_best(arenas, stop)
            after = self._reached
            idle = 0 if after > before * (1 + tuned.WORTH_A_ROUND) else idle + 1
        return most_rounds

    def decide(self, stop: Stop) -> Outcome | None:
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
        return outcome

    def ranked(self) -> list[Trial]:
        """Candidates by estimate, best first, without those that serve nothing or repeat another.

        Behind the best those whose stages are of other lengths than all before come first.
        """
        ranked = sorted(self._tried.values(), key=lambda trial: trial.value, reverse=True)
        ranked = [trial for trial in ranked[: tuned.COMPARED] if trial.value > 0]
        ranked.sort(key=lambda trial: -trial.value * (1 - tuned.PER_HOP * mean_hops(trial.flow)))
        lengths: dict[_Lengths, list[Trial]] = {}
        for trial in distinct(self._trials, ranked):
            held = sorted(map(len, trial.placement.layers.values()))
            lengths.setdefault(tuple(held), []).append(trial)
        return [
            *(alike[0] for alike in lengths.values()),
            *chain.from_iterable(alike[1:] for alike in lengths.values()),
        ]

    def _check_limits(self, best: Trial) -> None:
        """`best` was not simulated, or not within the limits. Raises LimitsNotKept."""
        goal, miss = self._trials.goal, self._trials.nearest_miss
        if miss is None and best.keeps_limits:
            return  # time allowed no simulation, and by estimate there is a rate
        figures = best.estimate if miss is None else miss
        limited = [
            (name, seconds, limit_s)
            for name, seconds, limit_s in (
                ("TTFT", figures.ttft_s, goal.ttft_limit_s),
                ("TPOT", figures.tpot_s, goal.tpot_limit_s),
            )
            if limit_s < math.inf
        ]
        limits = " and ".join(f"{name} of at most {limit_s:g} s" for name, _, limit_s in limited)
        if miss is None:
            reached = (
                f"estimated without limits, the best ({best.placer}) has a mean TTFT of "
                f"{figures.ttft_s:.3g} s and TPOT of {figures.tpot_s:.3g} s"
            )
        else:
            over = [name for name, seconds, limit_s in limited if seconds > limit_s]
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
        if trial.placement.components:
            yield from self._repacked()
        arena = self._whole
        if arena is None or trial.placement.components or not self._trials.goal.climbs:
            return
        for placement in arena.walked_from(trial.placement, walks=tuned.WALKS):
            before = len(self._tried)
            found = self.offer(self._with_pins(placement), placer=CLIMBED)
            if len(self._tried) > before and found.value >= tuned.WORTH_A_SIMULATION * trial.value:
                yield found

    def _repacked(self) -> Iterator[Trial]:
        """Components by what they served when they were simulated."""
        packed = self._packing.packed(
            self.board.program_limits(self._seed), value_of=self._trials.simulated_tokens_per_s
        )
        if packed is not None:
            yield self.offer(packed, placer=REPACKED)

    def _with_pins(self, placement: Placement) -> Placement:
        """Arenas know free nodes only; pinned ones join."""
        if not self._rules.pinned:
            return placement
        return Placement(layers={**placement.layers, **self._rules.pinned})

    def _arenas(self) -> list[Arena]:
        """The whole cluster's comes first."""
        problem = self._trials.problem
        whole = tuple(node.name for node in problem.cluster.nodes)
        divided = [] if self._rules.pinned else partitions(problem)
        arenas = [
            Arena(
                self._trials,
                names=names,
                rules=self._rules,
                seed=self._seed * 37 + number,
            )
            for number, names in enumerate(dict.fromkeys([whole, *chain(*divided)]))
        ]
        for trial in list(self._tried.values()):
            parts = trial.placement.parts
            for part in parts if len(parts) > 1 and self._adds_up else ():
                self._packing.offer(part, arenas[0].score_of(part))
            for arena in arenas:
                arena.offer(trial.placement)
        return arenas

    def _offer_best(self, arenas: list[Arena], stop: Stop) -> None:
        """The best of every arena, and those that serve most together."""
        for arena in arenas:
            if arena.best is None:
                continue
            if self._adds_up:
                self._packing.offer(arena.best, arena.score)
            if self.best is None or arena.score > self.best.value:
                self.offer(self._with_pins(arena.best), placer=PLACER)
        packed = self._packing.packed(replace(self.board.program_limits(self._seed), stop=stop))
        if packed is not None:
            self.offer(packed, placer=COMPONENTS)

    def _offer_others(self) -> None:
        """Offer plans that simulations may rank above the best by estimate."""
        least = tuned.WORTH_A_SIMULATION * self._reached
        if self._whole is not None and self._whole.score >= least:
            for placement in self._whole.placements():
                self.offer(self._with_pins(placement), placer=PLACER)

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
        """Run a round in slices, so that the clock and cancellation are checked."""
        left = tuned.MOVES_PER_NODE * 2**number * len(arena.names)
        while left > 0 and not stop.is_over():
            moves = min(left, max(1, tuned.MOVES_AT_ONCE // len(arena.names)))
            arena.anneal(moves=moves, hot=tuned.HOTNESS[number % len(tuned.HOTNESS)])
            left -= moves


def distinct(trials: Trials, ranked: Iterable[Trial]) -> list[Trial]:
    """Candidates without those whose estimate, flow and shape equal a better one's: the same plan
    with other nodes' names."""
    kept: list[tuple[Counter[Shape], Trial]] = []
    for trial in ranked:
        shape = Counter(map(trials.shape, trial.placement.parts))
        if not any(
            shape == known
            and abs(trial.value - other.value) <= tuned.ALIKE * other.value
            and abs(trial.flow.value_tokens_per_s - other.flow.value_tokens_per_s)
            <= tuned.ALIKE * other.flow.value_tokens_per_s
            for known, other in kept
        ):
            kept.append((shape, trial))
    return [trial for _, trial in kept]
