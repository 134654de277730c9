"""Layer ranges, perhaps around running ones, annealed until every layer has its target speed.

Works on coverage: the flow, if links do not bind and partial inference is allowed. Otherwise a
node covers its layers with no more than it can receive and send where ranges meet, and only an
exact max flow says what is true.
"""

import numpy as np

from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.capacity import allowed_limits
from planner.domain.cluster import COORDINATOR
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.link_matrix import link_capacities_tokens_per_s
from planner.placers.loops import (
    NO_INTEGERS,
    Ends,
    IntegerArray,
    RangeTask,
    anneal_ranges,
    ends_of,
    placement_of,
)
from planner.placers.stop import Stop
from planner.speed_table import speeds_by_layers
from planner.tuning.flow import RangeAnnealingTuning as tuned


def links_that_may_bind(problem: Problem, *, partial_inference: bool) -> IntegerArray | None:
    """Capacities from node to node, the coordinator last, in the loop's units.

    None if each link passes all that its ends may ever pass it and ranges need not meet.
    """
    names = [node.name for node in problem.cluster.nodes]
    bound = knapsack_bound_tokens_per_s(problem)
    most = [min(bound, max(problem.profile_of(name).tokens_per_s)) for name in names]
    passed = np.array([*most, np.inf])
    needed = np.minimum.outer(passed, passed)
    np.fill_diagonal(needed, 0.0)
    capacities = link_capacities_tokens_per_s(problem, [*names, COORDINATOR])
    if partial_inference and bool((capacities >= needed).all()):
        return None
    links: IntegerArray = (np.minimum(capacities, needed) * tuned.UNITS_PER_TOKEN).astype(np.int64)
    return links


class RangeAnnealing:
    """Anneals layer ranges; made once for a problem, used for many attempts.

    Pinned nodes stay as they are in the placement that an attempt begins at.
    """

    def __init__(
        self,
        problem: Problem,
        running: Placement,
        *,
        rules: PlacementRules,
        links: IntegerArray | None,
        spares: int = 0,
    ) -> None:
        """`running` is what `attempt` stays near.

        `links` as `links_that_may_bind` has them; None anneals coverage alone. With `spares` 1
        every layer must reach its target without the fastest node that holds it.
        """
        self._num_layers = problem.model.num_layers
        self._spares = spares
        self._names = [node.name for node in problem.cluster.nodes]
        limits = [allowed_limits(problem, name, rules) for name in self._names]
        speeds_NJ = speeds_by_layers(problem, self._names, limits)
        self._speeds_NJ: IntegerArray = (speeds_NJ * tuned.UNITS_PER_TOKEN).astype(np.int64)
        self._limits_NE = np.array(limits)
        self._limits_NE[[name in rules.pinned for name in self._names]] = 0
        self._running = ends_of(self._names, running.layers)
        self._links = NO_INTEGERS if links is None else links
        self._moves = self._moves_in_a_moment()

    def attempt(
        self,
        start: Placement,
        *,
        target_tokens_per_s: float,
        budget_layers: int,
        hotness: float,
        effort: float,
        seed: int,
    ) -> Placement:
        """The result of one annealing towards the target; it may move more than `budget_layers`.

        `hotness` 0.1 to 1 is the share of a whole layer's target that a change for the worse may
        cost at first. `effort` 1 takes about a tenth of a second on a machine of 2024. The same
        arguments give the same answer.
        """
        target = max(1, int(target_tokens_per_s * tuned.UNITS_PER_TOKEN))
        task = self._task(
            target,
            running=self._running,
            budget_layers=budget_layers,
            penalty=max(1, int(target * tuned.PENALTY_SHARE)),
        )
        _, ranges = anneal_ranges(
            task,
            ranges=ends_of(self._names, start.layers),
            hot=int(target * hotness),
            moves=max(1, int(effort * self._moves)),
            seed=seed,
        )
        return placement_of(self._names, ranges)

    def anneal(
        self,
        start: Placement,
        *,
        target_tokens_per_s: float,
        hotness: float,
        moves: int,
        seed: int,
        chunk_moves: int,
        stop: Stop,
    ) -> Placement:
        """The result of so many moves from `start` towards the target, without a limit on loading.

        The threshold sinks to 0. Between chunks of moves the clock is read.
        """
        target = max(1, int(target_tokens_per_s * tuned.UNITS_PER_TOKEN))
        hot = int(target * hotness)
        ranges = ends_of(self._names, start.layers)
        most = len(ranges) * self._num_layers
        task = self._task(target, running=ranges, budget_layers=most, penalty=0)
        for done in range(0, moves, chunk_moves):
            count = min(chunk_moves, moves - done)
            missing, ranges = anneal_ranges(
                task,
                ranges=ranges,
                hot=hot * (moves - done) // moves,
                cold=hot * (moves - done - count) // moves,
                moves=count,
                seed=seed * 1_000_003 + done // chunk_moves,
            )
            if missing <= 0 or stop.is_over():
                break
        return placement_of(self._names, ranges)

    def _task(
        self, target: int, *, running: list[Ends], budget_layers: int, penalty: int
    ) -> RangeTask:
        return RangeTask(
            num_layers=self._num_layers,
            target=target,
            speeds_NJ=self._speeds_NJ,
            limits_NE=self._limits_NE,
            running_N2=np.array(running, dtype=np.int64),
            budget_layers=budget_layers,
            penalty=penalty,
            charge=int(target * tuned.CHARGE_SHARE),
            spares=self._spares,
            links=self._links,
        )

    def _moves_in_a_moment(self) -> int:
        moves = min(tuned.MOST_MOVES, tuned.MOVES_PER_NODE * len(self._names))
        if self._links.size:
            # To measure a node takes a look at every other.
            moves = moves * tuned.LOOKS_PER_MOVE // (tuned.LOOKS_PER_MOVE + len(self._names))
        return moves
