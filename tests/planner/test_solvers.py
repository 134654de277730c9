"""Both solvers behind their one interface, on models whose answers are known."""

import itertools
import math
import os
import random
import signal
import sys
import threading
from collections.abc import Sequence
from functools import partial

import pytest

from planner.bounds.packing_program import PackingProgram
from planner.placers.solvers import gurobi, highs
from planner.placers.solvers.base import (
    MixedIntegerModel,
    SolveLimits,
    SolverUnavailable,
)
from planner.placers.solvers.choice import solve
from planner.placers.solvers.solver_thread import run_watched

SOLVERS = [gurobi, highs]
LIMITS = SolveLimits(time_limit_s=60.0, relative_gap=0.0, seed=0)
SPLIT_ROWS, SPLIT_COLUMNS = 20, 80

both_solvers = pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.NAME)


class Recorder:
    """A watcher that remembers, and stops when told to."""

    def __init__(self) -> None:
        self.solutions: list[Sequence[float]] = []
        self.bounds: list[float] = []
        self.stop = False

    def on_solution(self, values: Sequence[float]) -> None:
        self.solutions.append(values)

    def on_bound(self, upper_bound: float) -> None:
        self.bounds.append(upper_bound)

    def should_stop(self) -> bool:
        return self.stop


def knapsack(values: Sequence[float], weights: Sequence[float], room: float) -> MixedIntegerModel:
    """maximise values·x + y, x binary, y <= 0.5 real, weights·x + y <= room, x0 + x1 == 1."""
    model = MixedIntegerModel()
    taken = [model.add_binary() for _ in values]
    model.objective[:] = values
    rest = model.add_real(upper=0.5, objective=1.0)
    model.add_at_most([*zip(weights, taken, strict=True), (1.0, rest)], room)
    model.add_equal([(1.0, taken[0]), (1.0, taken[1])], 1.0)
    return model


def market_split() -> MixedIntegerModel:
    """A model far too hard to finish: equalities over binaries, slack counted against it.

    After a minute both solvers are a third short of a proof. (With 6 equalities over 50 binaries
    Gurobi needs between 0.3 s and minutes, by luck.)
    """
    model = MixedIntegerModel()
    taken = [model.add_binary() for _ in range(SPLIT_COLUMNS)]
    for row in range(SPLIT_ROWS):
        over = model.add_real(upper=1e6, objective=-1.0)
        under = model.add_real(upper=1e6, objective=-1.0)
        weights = [(37 * (row + 1) * (column + 3) ** 2) % 101 for column in range(SPLIT_COLUMNS)]
        terms = [(float(weight), column) for weight, column in zip(weights, taken, strict=True)]
        model.add_equal([*terms, (-1.0, over), (1.0, under)], float(sum(weights) // 2))
    return model


def watched(solver, model: MixedIntegerModel, *, start=None, limits, watcher):
    """The outcome of the solver itself, which another never replaces."""
    return run_watched(partial(solver.solve, model, start=start, limits=limits), watcher)


def objective(model: MixedIntegerModel, values: Sequence[float]) -> float:
    return sum(cost * value for cost, value in zip(model.objective, values, strict=True))


@both_solvers
def test_the_last_solution_told_is_the_optimum_by_enumeration(solver):
    values, weights, room = [7.0, 5.0, 4.0, 3.0, 1.0], [5.0, 4.0, 3.0, 2.0, 1.0], 9.2
    best = max(
        sum(v for v, t in zip(values, taken, strict=True) if t) + min(0.5, room - weight)
        for taken in itertools.product((0, 1), repeat=5)
        if (weight := sum(w for w, t in zip(weights, taken, strict=True) if t)) <= room
        and taken[0] + taken[1] == 1
    )
    model, watcher = knapsack(values, weights, room), Recorder()
    outcome = watched(solver, model, start=None, limits=LIMITS, watcher=watcher)
    assert outcome.cause == "optimal"
    assert objective(model, watcher.solutions[-1]) == pytest.approx(best)
    assert outcome.upper_bound == pytest.approx(best)
    assert watcher.bounds[-1] == outcome.upper_bound


@both_solvers
def test_a_start_is_where_the_solver_begins(solver):
    class Satisfied(Recorder):
        """Stops at the first solution."""

        def on_solution(self, values: Sequence[float]) -> None:
            super().on_solution(values)
            self.stop = True

    model, watcher = market_split(), Satisfied()
    start = [0.0] * model.num_variables
    for row in range(SPLIT_ROWS):
        start[SPLIT_COLUMNS + 2 * row + 1] = model.row_upper[row]
    watched(solver, model, start=start, limits=LIMITS, watcher=watcher)
    assert objective(model, watcher.solutions[0]) >= objective(model, start) - 1e-6


@both_solvers
def test_a_solver_ends_at_its_time_limit_and_says_so(solver):
    model, watcher = market_split(), Recorder()
    limits = SolveLimits(time_limit_s=0.3, relative_gap=0.0, seed=0)
    outcome = watched(solver, model, start=None, limits=limits, watcher=watcher)
    assert outcome.cause == "time limit"
    found = [objective(model, values) for values in watcher.solutions]
    assert outcome.upper_bound >= max(found, default=-math.inf)  # it may have had no time for any


@both_solvers
def test_a_watcher_that_says_stop_ends_the_solve(solver):
    watcher = Recorder()
    timer = threading.Timer(0.3, lambda: setattr(watcher, "stop", True))
    timer.start()
    outcome = watched(solver, market_split(), start=None, limits=LIMITS, watcher=watcher)
    timer.join()
    assert outcome.cause == "stopped"


@both_solvers
def test_the_watcher_is_called_on_the_callers_thread_only(solver):
    threads = set()

    class Noting(Recorder):
        def on_solution(self, values):
            threads.add(threading.current_thread())

        def should_stop(self):
            threads.add(threading.current_thread())
            return False

    watched(
        solver, knapsack([2.0, 1.0], [1.0, 1.0], 1.0), start=None, limits=LIMITS, watcher=Noting()
    )
    assert threads == {threading.current_thread()}


@both_solvers
@pytest.mark.parametrize("raised", [ValueError("no"), KeyboardInterrupt()])
def test_what_a_watcher_raises_leaves_solve_and_stops_the_solver(solver, raised):
    class Raising(Recorder):
        def on_solution(self, values):
            raise raised

    with pytest.raises(type(raised)):
        watched(solver, market_split(), start=None, limits=LIMITS, watcher=Raising())
    for thread in threading.enumerate():
        if thread.name == "solver":
            thread.join(timeout=60)
            assert not thread.is_alive()


@both_solvers
def test_a_solver_prints_nothing(solver, capfd):
    watched(
        solver, knapsack([2.0, 1.0], [1.0, 1.0], 1.0), start=None, limits=LIMITS, watcher=Recorder()
    )
    assert capfd.readouterr() == ("", "")


def too_large_for_the_free_licence() -> MixedIntegerModel:
    model = MixedIntegerModel()
    columns = [model.add_binary() for _ in range(2001)]
    model.objective[:] = [1.0] * 2001
    model.add_at_most([(1.0, column) for column in columns], 7.0)
    return model


def gurobi_refuses(model: MixedIntegerModel) -> bool:
    try:
        watched(gurobi, model, start=None, limits=LIMITS, watcher=Recorder())
    except SolverUnavailable:
        return True
    return False


@pytest.mark.parametrize("name", ["auto", "gurobi"])
def test_where_the_licence_is_too_small_highs_solves_and_the_answer_says_why(name):
    model = too_large_for_the_free_licence()
    if not gurobi_refuses(model):
        pytest.skip("this machine has a Gurobi licence without a size limit")
    watcher = Recorder()
    solved = solve(name, model, start=None, limits=LIMITS, watcher=watcher)
    assert solved.solver == (
        "highs (gurobi: model too large for size-limited licence: 2001 variables, 1 rows)"
    )
    assert solved.upper_bound == pytest.approx(7.0)
    assert objective(model, watcher.solutions[-1]) == pytest.approx(7.0)


def test_where_gurobi_is_not_installed_highs_solves_and_the_answer_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "planner.placers.solvers.gurobi", None)
    model = knapsack([2.0, 1.0], [1.0, 1.0], 1.0)
    solved = solve("gurobi", model, start=None, limits=LIMITS, watcher=Recorder())
    assert solved.solver.startswith("highs (gurobi: not installed")
    assert solved.upper_bound == pytest.approx(2.0)


@both_solvers
def test_an_interrupt_while_a_solver_runs_reaches_who_listens_for_it(solver):
    class Impatient(Recorder):
        def on_bound(self, upper_bound: float) -> None:
            super().on_bound(upper_bound)
            if len(self.bounds) == 3:
                os.kill(os.getpid(), signal.SIGINT)

        def should_stop(self) -> bool:
            return bool(heard)

    heard: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        limits = SolveLimits(time_limit_s=60.0, relative_gap=0.0, seed=0)
        outcome = watched(solver, market_split(), start=None, limits=limits, watcher=Impatient())
    finally:
        signal.signal(signal.SIGINT, previous)
    assert heard
    assert outcome.cause == "stopped"


@both_solvers
def test_a_node_limit_ends_a_solve_at_the_same_place_every_time(solver):
    model = market_split()
    limits = SolveLimits(time_limit_s=60.0, relative_gap=0.0, seed=0, node_limit=50)
    watchers = Recorder(), Recorder()
    outcomes = [
        watched(solver, model, start=None, limits=limits, watcher=watcher) for watcher in watchers
    ]
    assert outcomes[0].cause == "node limit"
    assert outcomes[0] == outcomes[1]
    assert watchers[0].solutions == watchers[1].solutions


def test_highs_when_demanded_is_not_asked_twice():
    model = knapsack([2.0, 1.0], [1.0, 1.0], 1.0)
    solved = solve("highs", model, start=None, limits=LIMITS, watcher=Recorder())
    assert solved.solver == "highs"
    assert math.isfinite(solved.upper_bound)


@pytest.mark.parametrize("seed", range(10))
def test_gurobi_and_highs_agree_on_the_programs_of_bounds(seed):
    rng = random.Random(seed)
    limits = [rng.uniform(1, 9) for _ in range(6)]
    program, model = PackingProgram(limits), MixedIntegerModel()
    terms: list[list[tuple[float, int]]] = [[] for _ in limits]
    for _ in range(15):
        value, upper = rng.uniform(1, 5), rng.uniform(0.5, 3)
        use_of_rows = {row: rng.uniform(0.1, 2) for row in rng.sample(range(6), 3)}
        program.add_column(use_of_rows, value=value, upper=upper)
        column = model.add_real(upper=upper, objective=value)
        for row, use in use_of_rows.items():
            terms[row].append((use, column))
    for row, limit in enumerate(limits):
        model.add_at_most(terms[row], limit)
    by_gurobi = watched(gurobi, model, limits=LIMITS, watcher=Recorder())
    assert by_gurobi.upper_bound == pytest.approx(program.solve().value)
