"""The pattern program of wide stages, whose nodes may be in any region."""

from collections.abc import Sequence

from planner.domain.problem import Problem
from planner.placers.base import SearchOptions
from planner.placers.pattern_search import PatternProgram
from planner.placers.patterns import PatternFamily, PatternPool, Rows, StageNodes
from planner.placers.stage_patterns import free_kinds
from planner.tuning.flow import WideStagesTuning as tuned


def wide_stages(problem: Problem, options: SearchOptions, slow: float) -> PatternProgram:
    """Every stage wide, of nodes from anywhere; narrower ones between wider ones.

    Stages of exponent e and 1 - e pass a flow on to each other, so narrower stages (e < 1/2) are
    placed alternately with wider ones. One row for each narrower exponent n:

        stages of exponent <= n  <=  stages of exponent >= 1 - n
    """
    kinds, families = free_kinds(problem, options), []
    for exponent in (*tuned.NARROWER, tuned.EVEN, *(1 - narrower for narrower in tuned.NARROWER)):
        use: dict[int, float] = {}
        for row, narrower in enumerate(tuned.NARROWER, start=len(kinds)):
            if exponent <= narrower:
                use[row] = 1.0
            elif exponent >= 1 - narrower:
                use[row] = -1.0
        families.append(
            PatternFamily(
                kinds=tuple(range(len(kinds))),
                link_tokens_per_s=slow,
                width_exponent=exponent,
                use_of_rows=use,
            )
        )
    rows = Rows(extra_limits=(0.0,) * len(tuned.NARROWER))
    pool = PatternPool(kinds, families, rows, max_stages=options.rules.max_hops)

    def alternating(stages: Sequence[StageNodes]) -> list[StageNodes]:
        by_width = sorted(stages, key=pool.exponent_of)
        narrower = [stage for stage in by_width if pool.exponent_of(stage) < tuned.EVEN]
        wider = by_width[: len(narrower) - 1 : -1]
        pairs = [stage for pair in zip(narrower, wider, strict=False) for stage in pair]
        return [*pairs, *wider[len(narrower) :]]

    return PatternProgram(pool=pool, num_layers=problem.model.num_layers, in_order=alternating)
