"""Placers by name."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from planner.placers.annealing import AnnealingOptions
from planner.placers.base import InvalidOptions, Placer
from planner.placers.interval_annealing import IntervalAnnealingPlacer
from planner.placers.milp import MilpOptions, MilpPlacer
from planner.placers.portfolio import PortfolioOptions, PortfolioPlacer
from planner.placers.region_chain import RegionChainPlacer
from planner.placers.solvers.choice import SolverName
from planner.placers.stage_annealing import StageAnnealingPlacer
from planner.placers.stage_patterns import StagePatternPlacer

PlacerName = Literal[
    "auto", "milp", "stage-patterns", "region-chain", "stage-annealing", "interval-annealing"
]
# Per node and try, where annealing is all that was asked for.
_MOVES_PER_NODE = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacerOptions:
    """Which placer, and what some of them need to know; as in MilpOptions."""

    placer: PlacerName = "auto"
    solver: SolverName = "auto"
    prune_degree: float | None = None
    relative_gap: float = 1e-4
    known_upper_bound_tokens_per_s: float = math.inf

    def __post_init__(self) -> None:
        if self.placer not in get_args(PlacerName):
            raise InvalidOptions(
                f"placer is {self.placer!r}; use one of: {', '.join(get_args(PlacerName))}"
            )
        self.milp_options()

    def milp_options(self) -> MilpOptions:
        """Raises InvalidOptions."""
        return MilpOptions(
            solver=self.solver,
            prune_degree=self.prune_degree,
            relative_gap=self.relative_gap,
            known_upper_bound_tokens_per_s=self.known_upper_bound_tokens_per_s,
        )


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
            return MilpPlacer(options=options.milp_options(), clock=clock)
        case "stage-patterns":
            return StagePatternPlacer(solver=pattern_solver, clock=clock)
        case "region-chain":
            return RegionChainPlacer(solver=pattern_solver, clock=clock)
        case "stage-annealing":
            return StageAnnealingPlacer(annealing=annealing, clock=clock)
        case "interval-annealing":
            return IntervalAnnealingPlacer(annealing=annealing, clock=clock)
        case "auto":
            return PortfolioPlacer(
                options=PortfolioOptions(
                    solver=options.solver,
                    prune_degree=options.prune_degree,
                    relative_gap=options.relative_gap,
                    known_upper_bound_tokens_per_s=options.known_upper_bound_tokens_per_s,
                ),
                clock=clock,
            )
