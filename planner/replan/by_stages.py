"""Answers by the integer program over stages: the fewest layers to load for almost all the flow."""

import time
from collections.abc import Callable

from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.placers.solvers.choice import SolverName
from planner.replan.answers import Front, ReplanPoint
from planner.replan.options import ReplanOptions
from planner.replan.stay_patterns import StayPatterns
from planner.replan.stay_program import StayLimits, StayProgram

STAGES_CHOSEN = "stages chosen"
# What may be lost of the flow that a long search from scratch would find: it lies between the most
# that is known and the bound.
_SHARE = 0.97
_LEAST_RISE = 5e-3
_MOST_PROGRAMS = 4
# From a flow that takes too many bytes to one that often takes a quarter of them.
_STEP_DOWN = 0.03
# Links, which the program does not see, take more of its flow than this: it is of no use here.
_MISLED_SHARE = 0.1


class ByStages:
    """One program after another, at targets that follow what is found."""

    def __init__(
        self,
        problem: Problem,
        *,
        options: ReplanOptions,
        front: Front,
        upper_bound_tokens_per_s: float,
    ) -> None:
        self._problem = problem
        self._options = options
        self._front = front
        self._upper_bound = upper_bound_tokens_per_s

    def search(
        self,
        *,
        budget_layers: int,
        time_limit_s: float,
        should_stop: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Offer what the programs find, until they find no more or the time ends.

        Once an answer loads more than `budget_layers`, the following ones are of less flow.
        """
        started_s = clock()

        def left_s() -> float:
            return time_limit_s - (clock() - started_s)

        def is_over() -> bool:
            return should_stop() or left_s() <= 0

        high = self._upper_bound
        target, is_dear = 0.0, False
        for _ in range(_MOST_PROGRAMS):
            following = _SHARE * (self._front.most_flow_tokens_per_s + high) / 2
            if is_dear:
                following = target * (1 - _STEP_DOWN)
            if is_over() or abs(following - target) <= _LEAST_RISE * following:
                return
            target = following
            answer = self._solved(
                target,
                StayLimits(
                    solver=self._solver(),
                    seed=self._options.plan.seed,
                    should_stop=is_over,
                ),
            )
            if answer is None:
                high = min(high, target)
            elif answer.flow_tokens_per_s < target * (1 - _MISLED_SHARE):
                return
            elif self._front.layers_to_load(answer.placement) > budget_layers:
                is_dear = True
            elif is_dear:
                return

    def _solved(self, target_tokens_per_s: float, limits: StayLimits) -> ReplanPoint | None:
        """The program's answer, which is offered; None: some layers stay unheld."""
        plan = self._options.plan
        program = StayProgram(
            StayPatterns(
                self._problem,
                self._front.running,
                rules=plan.rules,
                partial_inference=plan.partial_inference,
                target_tokens_per_s=target_tokens_per_s,
            ),
            max_stages=plan.rules.max_hops,
        )
        solution = program.solve(limits)
        if solution is None or solution.layers_held < self._problem.model.num_layers:
            return None
        placement = Placement(layers=dict(solution.placement.layers) | dict(plan.rules.pinned))
        return self._front.offer(placement, method=STAGES_CHOSEN)

    def _solver(self) -> SolverName:
        return "gurobi" if self._options.plan.solver == "gurobi" else "highs"
