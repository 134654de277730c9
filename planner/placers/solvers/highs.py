"""HiGHS, the open solver that is always there (https://highs.dev)."""

import math
from collections.abc import Sequence

import highspy
import numpy as np

from planner.placers.solvers.base import (
    MixedIntegerModel,
    SolveLimits,
    SolveOutcome,
    SolverFailed,
    StopCause,
)
from planner.placers.solvers.solver_thread import SolverChannel

_CAUSES: dict[highspy.HighsModelStatus, StopCause] = {
    highspy.HighsModelStatus.kOptimal: "optimal",
    highspy.HighsModelStatus.kSolutionLimit: "node limit",
    highspy.HighsModelStatus.kTimeLimit: "time limit",
    highspy.HighsModelStatus.kInterrupt: "stopped",
}


NAME = "highs"


def solve(
    model: MixedIntegerModel,
    channel: SolverChannel,
    *,
    start: Sequence[float] | None,
    limits: SolveLimits,
) -> SolveOutcome:
    """Solves by branch and cut; stops by an interrupt that its callbacks ask for.

    Raises SolverFailed.
    """
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    _set_options(solver, limits)
    _check(solver.passModel(_as_highs_lp(model)), "load the model")
    if start is not None:
        solution = highspy.HighsSolution()
        solution.col_value = list(start)
        _check(solver.setSolution(solution), "load the start")
    _attach(solver, channel)
    _check(solver.run(), "solve the model")
    return _outcome(solver, channel)


def _attach(solver: highspy.Highs, channel: SolverChannel) -> None:
    """Register callbacks: solutions as they are found, bounds when HiGHS checks for interrupts."""

    def tell_solution(event: highspy.HighsCallbackEvent) -> None:
        channel.tell_solution(event.data_out.mip_solution.tolist())

    def tell_bound_and_ask(event: highspy.HighsCallbackEvent) -> None:
        channel.tell_bound(_finite(event.data_out.mip_dual_bound))
        ask(event)

    def ask(event: highspy.HighsCallbackEvent) -> None:
        if channel.should_stop():
            event.interrupt()

    solver.cbMipImprovingSolution += tell_solution
    solver.cbMipInterrupt += tell_bound_and_ask
    solver.cbSimplexInterrupt += ask


def _set_options(solver: highspy.Highs, limits: SolveLimits) -> None:
    for option, value in (
        ("output_flag", False),
        ("threads", 1),
        ("time_limit", max(0.0, limits.time_limit_s)),
        ("mip_rel_gap", limits.relative_gap),
        ("random_seed", limits.seed % 2**31),
        ("mip_max_nodes", highspy.kHighsIInf if limits.node_limit is None else limits.node_limit),
    ):
        _check(solver.setOptionValue(option, value), f"set {option} to {value}")


def _as_highs_lp(model: MixedIntegerModel) -> highspy.HighsLp:
    lp = highspy.HighsLp()
    lp.num_col_ = model.num_variables
    lp.num_row_ = model.num_rows
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = np.asarray(model.objective)
    lp.col_lower_ = np.zeros(model.num_variables)
    lp.col_upper_ = np.asarray(model.upper)
    lp.row_lower_ = np.asarray(model.row_lower)
    lp.row_upper_ = np.asarray(model.row_upper)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.asarray(model.row_starts, dtype=np.int32)
    lp.a_matrix_.index_ = np.asarray(model.columns, dtype=np.int32)
    lp.a_matrix_.value_ = np.asarray(model.coefficients)
    types = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
    lp.integrality_ = [types[is_integer] for is_integer in model.is_integer]
    return lp


def _outcome(solver: highspy.Highs, channel: SolverChannel) -> SolveOutcome:
    model_status = solver.getModelStatus()
    cause = _CAUSES.get(model_status)
    if cause is None:
        raise SolverFailed(
            f"HiGHS stopped with {solver.modelStatusToString(model_status)!r}; "
            "report the problem file, or use another placer"
        )
    info = solver.getInfo()
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        channel.tell_solution(solver.getSolution().col_value)
    return SolveOutcome(upper_bound=_finite(info.mip_dual_bound), cause=cause)


def _finite(bound: float) -> float:
    """HiGHS writes "no bound yet" as either infinity."""
    return bound if math.isfinite(bound) else math.inf


def _check(status: highspy.HighsStatus, doing: str) -> None:
    if status == highspy.HighsStatus.kError:
        raise SolverFailed(f"HiGHS could not {doing}; report the problem file")
