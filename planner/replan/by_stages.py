"""Answers by the integer program over stages: the fewest layers to load for almost all the flow."""

import time
from collections.abc import Callable

from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.placers.solvers.choice import SolverName
from planner.replan.answers import Front, ReplanPoint
from planner.replan.options import ReplanOptions
from planner.replan.stay_groups import StayColumn
from planner.replan.stay_patterns import StayPatterns
from planner.replan.stay_program import StayLimits, StayProgram

STAGES_CHOSEN = "stages chosen"
# What may be lost of the flow that a long search from scratch would find: it lies between the most
# that is known and the bound.
_SHARE = 0.97
_LEAST_RISE = 5e-3
_MOST_PROGRAMS = 5
# Where in between, first; then, while answers load too much.
_BETWEEN = 0.5
_BETWEEN_IF_DEAR = (0.0,)
# And then from a flow that takes too many bytes to one that often takes a quarter of them.
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
        # All that any program found: most carry the next one's target too.
        self._columns: dict[StayColumn, None] = {}

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
        fallbacks = iter(_BETWEEN_IF_DEAR)
        for _ in range(_MOST_PROGRAMS):
            between = next(fallbacks, None) if is_dear else _BETWEEN
            if between is None:
                following = target * (1 - _STEP_DOWN)
            else:
                most = self._front.most_flow_tokens_per_s
                following = _SHARE * (most + between * (high - most))
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
            known=tuple(self._columns),
        )
        solution = program.solve(limits)
        self._columns |= dict.fromkeys(program.columns)
        if solution is None or solution.layers_held < self._problem.model.num_layers:
            return None
        placement = Placement(layers=dict(solution.placement.layers) | dict(plan.rules.pinned))
        return self._front.offer(placement, method=STAGES_CHOSEN)

    def _solver(self) -> SolverName:
        return "gurobi" if self._options.plan.solver == "gurobi" else "highs"
