"""Which solver runs: the one asked for, or Gurobi where its licence allows, else HiGHS."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from planner.placers.solvers.base import (
    MipSolver,
    MixedIntegerModel,
    SolveLimits,
    SolveOutcome,
    SolverUnavailable,
    SolveWatcher,
)
from planner.placers.solvers.gurobi import GurobiSolver
from planner.placers.solvers.highs import HighsSolver

SolverName = Literal["auto", "gurobi", "highs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SolvedBy:
    """An outcome and, in words, the solver it came from and why."""

    outcome: SolveOutcome
    solver: str


def solve(
    name: SolverName,
    model: MixedIntegerModel,
    *,
    start: Sequence[float] | None,
    limits: SolveLimits,
    watcher: SolveWatcher,
) -> SolvedBy:
    """Solve by `name`; "auto" tries Gurobi first. Raises SolverUnavailable for "gurobi" only."""
    if name == "highs":
        return _solve_with(HighsSolver(), model, start=start, limits=limits, watcher=watcher)
    try:
        return _solve_with(GurobiSolver(), model, start=start, limits=limits, watcher=watcher)
    except SolverUnavailable as error:
        if name == "gurobi":
            raise SolverUnavailable(
                f"gurobi: {error}; choose solver 'auto' or 'highs', prune more links, "
                "or install a full licence"
            ) from error
        refusal = str(error)
    solved = _solve_with(HighsSolver(), model, start=start, limits=limits, watcher=watcher)
    return SolvedBy(outcome=solved.outcome, solver=f"highs (gurobi: {refusal})")


def _solve_with(
    solver: MipSolver,
    model: MixedIntegerModel,
    *,
    start: Sequence[float] | None,
    limits: SolveLimits,
    watcher: SolveWatcher,
) -> SolvedBy:
    outcome = solver.solve(model, start=start, limits=limits, watcher=watcher)
    return SolvedBy(outcome=outcome, solver=solver.name)
