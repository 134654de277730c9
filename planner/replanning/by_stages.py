"""Answers by the integer program over stages: the fewest layers to load for almost all the flow."""

import math

from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.placers.stop import ProgramLimits, Stop
from planner.replanning.answers import Front, ReplanPoint
from planner.replanning.options import ReplanOptions
from planner.replanning.stay_groups import StayColumn
from planner.replanning.stay_patterns import StayPatterns
from planner.replanning.stay_program import StayProgram
from planner.tuning.replanning import ReplanByStagesTuning as tuned

STAGES_CHOSEN = "stages chosen"


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

    def search(self, stop: Stop, *, budget_layers: int) -> None:
        """Offer what the programs find, until no more is worth asking or the time ends.

        Skips a target that a cheap answer already meets, or when a lower one already exceeded the
        budget.
        """
        too_much = self._upper_bound
        for way in tuned.WAYS:
            most = self._front.most_value
            target = tuned.SHARE * (most + way * (self._upper_bound - most))
            if target >= too_much or self._is_met(target, way=way, budget_layers=budget_layers):
                continue
            if stop.is_over():
                return
            answer = self._solved(target, self._limits(stop))
            if answer is None:
                too_much = target
            elif answer.flow_tokens_per_s < target * (1 - tuned.MISLED_SHARE):
                return
            elif self._front.layers_to_load(answer.placement) > budget_layers:
                too_much = target
        target = tuned.SHARE * self._front.most_value
        if self._layers_for(target) > budget_layers:
            self._step_down(target, stop, budget_layers=budget_layers)

    def _step_down(self, too_much: float, stop: Stop, *, budget_layers: int) -> None:
        """The most flow below `too_much` within the budget, by bisection."""
        target = least = too_much * (1 - tuned.STEP_DOWN)
        for _ in range(tuned.STEPS):
            if stop.is_over():
                return
            answer = self._solved(target, self._limits(stop))
            if answer is None or self._front.layers_to_load(answer.placement) > budget_layers:
                too_much = target
            else:
                least = max(target, answer.flow_tokens_per_s)
            target = (least + too_much) / 2

    def _is_met(self, target: float, *, way: float, budget_layers: int) -> bool:
        """Whether a known answer carries the target and is cheap, or cheap enough for so much."""
        share = 1.0 if way > tuned.WAYS[0] else tuned.CHEAP_SHARE
        return self._layers_for(target) <= share * budget_layers

    def _layers_for(self, target: float) -> float:
        cheapest = self._front.cheapest_from(target)
        return math.inf if cheapest is None else self._front.layers_to_load(cheapest.placement)

    def _limits(self, stop: Stop) -> ProgramLimits:
        plan = self._options.plan
        return ProgramLimits(seed=plan.seed, solver=plan.solver, stop=stop)

    def _solved(self, target_tokens_per_s: float, limits: ProgramLimits) -> ReplanPoint | None:
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
