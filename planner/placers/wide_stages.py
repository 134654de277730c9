"""The pattern program of wide stages, whose nodes may be in any region."""

from collections.abc import Iterator

from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.placers.base import SearchOptions
from planner.placers.pattern_search import FoundStages
from planner.placers.patterns import PatternFamily, PatternPool, Rows, StageNodes
from planner.placers.stage_patterns import free_kinds
from planner.placers.stages import placement_of_stages
from planner.tuning.flow import WideStagesTuning as tuned


class WideStages:
    """Every stage wide, of nodes from anywhere; narrower ones between wider ones.

    Stages of exponent e and 1 - e pass a flow on to each other, so narrower stages (e < 1/2) are
    placed alternately with wider ones. One row for each narrower exponent n:

        stages of exponent <= n  <=  stages of exponent >= 1 - n
    """

    def __init__(self, problem: Problem, options: SearchOptions, slow: float) -> None:
        self._kinds = free_kinds(problem, options)
        self.num_layers = problem.model.num_layers
        first_row = len(self._kinds)
        limits = [0.0] * len(tuned.NARROWER)
        hops: dict[int, float] = {}
        if options.rules.max_hops is not None:
            hops = {first_row + len(limits): 1.0}
            limits.append(float(options.rules.max_hops))
        families = []
        for exponent in (
            *tuned.NARROWER,
            tuned.EVEN,
            *(1 - narrower for narrower in tuned.NARROWER),
        ):
            use = dict(hops)
            for row, narrower in enumerate(tuned.NARROWER, start=first_row):
                if exponent <= narrower:
                    use[row] = 1.0
                elif exponent >= 1 - narrower:
                    use[row] = -1.0
            families.append(
                PatternFamily(
                    kinds=tuple(range(len(self._kinds))),
                    link_tokens_per_s=slow,
                    width_exponent=exponent,
                    use_of_rows=use,
                )
            )
        self.pool = PatternPool(self._kinds, families, Rows(extra_limits=tuple(limits)))

    def placements(self, found: FoundStages) -> Iterator[Placement]:
        by_width = sorted(found.stages, key=self._exponent)
        narrower = [stage for stage in by_width if self._exponent(stage) < tuned.EVEN]
        wider = by_width[: len(narrower) - 1 : -1]
        alternating = [stage for pair in zip(narrower, wider, strict=False) for stage in pair]
        stages = [*alternating, *wider[len(narrower) :]]
        yield placement_of_stages(self._kinds, stages)

    def _exponent(self, stage: StageNodes) -> float:
        return self.pool.families[stage.family].width_exponent
