"""The Gurobi solver: without a licence it solves up to 2 000 variables and 2 000 rows."""

import ctypes
import math
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import gurobipy as gp
import numpy as np
from gurobipy import GRB

from planner.placers.solvers.base import (
    MixedIntegerModel,
    SolveLimits,
    SolveOutcome,
    SolverFailed,
    SolverUnavailable,
    StopCause,
)
from planner.placers.solvers.solver_thread import SolverChannel

_CAUSES: dict[int, StopCause] = {
    GRB.OPTIMAL: "optimal",
    GRB.NODE_LIMIT: "node limit",
    GRB.TIME_LIMIT: "time limit",
    GRB.INTERRUPTED: "stopped",
}
_LICENCE_ERRORS = frozenset({GRB.Error.NO_LICENSE, GRB.Error.SIZE_LIMIT_EXCEEDED})

_get_handler = ctypes.pythonapi.PyOS_getsig
_get_handler.restype, _get_handler.argtypes = ctypes.c_void_p, (ctypes.c_int,)
_set_handler = ctypes.pythonapi.PyOS_setsig
_set_handler.restype, _set_handler.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)


NAME = "gurobi"


def solve(
    model: MixedIntegerModel,
    channel: SolverChannel,
    *,
    start: Sequence[float] | None,
    limits: SolveLimits,
) -> SolveOutcome:
    """Solves by branch and cut; stops by `terminate`, called from its own callback.

    Raises SolverUnavailable before any work is done.
    Raises SolverFailed afterwards.
    """
    try:
        with (
            _own_interrupts() as keep_interrupts,
            _silent_environment() as environment,
            gp.Model(env=environment) as native,
        ):
            _set_parameters(native, limits)
            variables = _load(native, model)
            if start is not None:
                native.setAttr(GRB.Attr.Start, variables, list(start))
            native.optimize(_callback(variables, channel, keep_interrupts))
            return _outcome(native, variables, channel)
    except gp.GurobiError as error:
        if error.errno in _LICENCE_ERRORS:
            raise SolverUnavailable(_unavailable(error, model)) from error
        raise SolverFailed(f"Gurobi failed: {error} (error {error.errno})") from error


@contextmanager
def _own_interrupts() -> Iterator[Callable[[], None]]:
    """Keep Python's handler of Ctrl-C; call the yielded function while Gurobi runs.

    While it optimizes, Gurobi replaces Python's SIGINT handler by one that ends only the running
    optimization.
    """
    handler = _get_handler(signal.SIGINT)

    def keep() -> None:
        if _get_handler(signal.SIGINT) != handler:
            _set_handler(signal.SIGINT, handler)

    try:
        yield keep
    finally:
        keep()


def _callback(
    variables: list[gp.Var], channel: SolverChannel, keep_interrupts: Callable[[], None]
) -> Callable[[gp.Model, int], None]:
    def callback(native: gp.Model, where: int) -> None:
        keep_interrupts()
        if where == GRB.Callback.MIPSOL:
            channel.tell_solution(native.cbGetSolution(variables))
        elif where == GRB.Callback.MIP:
            channel.tell_bound(_finite(native.cbGet(GRB.Callback.MIP_OBJBND)))
        if channel.should_stop():
            native.terminate()

    return callback


def _silent_environment() -> gp.Env:
    """An environment that prints neither its licence nor a log; raises GurobiError 10009."""
    environment = gp.Env(empty=True)
    environment.setParam(GRB.Param.OutputFlag, 0)
    environment.start()
    return environment


def _set_parameters(native: gp.Model, limits: SolveLimits) -> None:
    native.Params.Threads = 1
    native.Params.TimeLimit = max(0.0, limits.time_limit_s)
    native.Params.MIPGap = limits.relative_gap
    # Our bounds come from outside and are tight; the work is in finding solutions.
    native.Params.MIPFocus = 1
    native.Params.Seed = limits.seed % 2_000_000_000
    if limits.node_limit is not None:
        native.Params.NodeLimit = limits.node_limit


def _load(native: gp.Model, model: MixedIntegerModel) -> list[gp.Var]:
    variables: list[gp.Var] = native.addMVar(
        model.num_variables,
        ub=np.asarray(model.upper),
        obj=np.asarray(model.objective),
        vtype=np.where(model.is_integer, GRB.INTEGER, GRB.CONTINUOUS),
    ).tolist()
    for row in range(model.num_rows):
        entries = slice(model.row_starts[row], model.row_starts[row + 1])
        terms = gp.LinExpr(
            model.coefficients[entries], [variables[column] for column in model.columns[entries]]
        )
        lower, upper = model.row_lower[row], model.row_upper[row]
        native.addLConstr(terms, GRB.EQUAL if lower == upper else GRB.LESS_EQUAL, upper)
    native.ModelSense = GRB.MAXIMIZE
    native.update()
    return variables


def _outcome(native: gp.Model, variables: list[gp.Var], channel: SolverChannel) -> SolveOutcome:
    cause = _CAUSES.get(native.Status)
    if cause is None:
        raise SolverFailed(
            f"Gurobi stopped with status {native.Status}; report the problem file, or use HiGHS"
        )
    if native.SolCount:
        channel.tell_solution(native.getAttr(GRB.Attr.X, variables))
    return SolveOutcome(upper_bound=_finite(native.ObjBound), cause=cause)


def _finite(bound: float) -> float:
    return bound if abs(bound) < GRB.INFINITY else math.inf


def _unavailable(error: gp.GurobiError, model: MixedIntegerModel) -> str:
    if error.errno == GRB.Error.SIZE_LIMIT_EXCEEDED:
        return (
            f"model too large for size-limited licence: {model.num_variables} variables, "
            f"{model.num_rows} rows"
        )
    return f"no usable licence: {error}"
