"""Which solver runs: HiGHS, or Gurobi where it is installed and its licence allows."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.placers.solvers.base import (
    MipSolver,
    MixedIntegerModel,
    SolveLimits,
    SolveOutcome,
    SolverName,
    SolverUnavailable,
    SolveWatcher,
)
from planner.placers.solvers.highs import HighsSolver


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
    """Solve by `name`; where Gurobi cannot run, HiGHS does, and `solver` of the answer says why."""
    if name == "highs":
        return _solve_with(HighsSolver(), model, start=start, limits=limits, watcher=watcher)
    try:
        return _solve_with(_gurobi(), model, start=start, limits=limits, watcher=watcher)
    except SolverUnavailable as error:
        refusal = str(error)
    solved = _solve_with(HighsSolver(), model, start=start, limits=limits, watcher=watcher)
    return SolvedBy(outcome=solved.outcome, solver=f"highs (gurobi: {refusal})")


def _gurobi() -> MipSolver:
    """Loaded when it is asked for: it may not be installed, and takes a while to load."""
    try:
        from planner.placers.solvers.gurobi import GurobiSolver
    except ImportError as error:
        raise SolverUnavailable(f"not installed: {error}") from error
    return GurobiSolver()


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
