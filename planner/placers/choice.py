"""Placers by name."""

import time
from collections.abc import Callable

from planner.placers.annealing import AnnealingOptions
from planner.placers.base import Placer, PlacerOptions
from planner.placers.interval_annealing import IntervalAnnealingPlacer
from planner.placers.milp import MilpPlacer
from planner.placers.portfolio import PortfolioPlacer
from planner.placers.region_chain import RegionChainPlacer
from planner.placers.solvers.base import SolverName
from planner.placers.stage_annealing import StageAnnealingPlacer
from planner.placers.stage_patterns import StagePatternPlacer

# Per node and try, where annealing is all that was asked for.
_MOVES_PER_NODE = 20_000


def chosen_placer(options: PlacerOptions, *, clock: Callable[[], float] = time.monotonic) -> Placer:
    """The placer of that name. Pattern programs take Gurobi only when it is demanded."""
    annealing = AnnealingOptions(
        moves_per_node=_MOVES_PER_NODE,
        known_upper_bound_tokens_per_s=options.known_upper_bound_tokens_per_s,
        relative_gap=options.relative_gap,
    )
    pattern_solver: SolverName = "gurobi" if options.solver == "gurobi" else "highs"
    match options.placer:
        case "milp":
            return MilpPlacer(options=options, clock=clock)
        case "stage-patterns":
            return StagePatternPlacer(solver=pattern_solver, clock=clock)
        case "region-chain":
            return RegionChainPlacer(solver=pattern_solver, clock=clock)
        case "stage-annealing":
            return StageAnnealingPlacer(annealing=annealing, clock=clock)
        case "interval-annealing":
            return IntervalAnnealingPlacer(annealing=annealing, clock=clock)
        case "auto":
            return PortfolioPlacer(options=options, clock=clock)
