"""The interface of a mixed-integer solver: the model, the limits, the watcher, the outcome.

A model is built once, independent of any solver, and always maximises. Coefficients are kept as
one compressed row matrix, which both solvers take without a copy per row.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from planner.domain.errors import PlannerError

Terms = Iterable[tuple[float, int]]
"""(coefficient, variable) pairs; a variable appears at most once in a row."""

SolverName = Literal["auto", "gurobi", "highs"]
StopCause = Literal["optimal", "node limit", "time limit", "stopped"]


class SolverUnavailable(PlannerError):
    """The solver cannot run this model here: not installed, no licence, or one too small for it."""


class SolverFailed(PlannerError):
    """The solver gave up for a reason that is neither a limit nor an answer."""


@dataclass(slots=True, kw_only=True)
class MixedIntegerModel:
    """maximise c·x subject to row_lower <= A x <= row_upper, 0 <= x <= upper."""

    objective: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    is_integer: list[bool] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)
    row_starts: list[int] = field(default_factory=lambda: [0])
    coefficients: list[float] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)

    @property
    def num_variables(self) -> int:
        return len(self.objective)

    @property
    def num_rows(self) -> int:
        return len(self.row_lower)

    def add_real(self, *, upper: float, objective: float = 0.0) -> int:
        """A variable in [0, upper]; returns its index."""
        return self._add_variable(upper=upper, objective=objective, is_integer=False)

    def add_integer(self, *, upper: int) -> int:
        """A variable in {0 .. upper}; returns its index."""
        return self._add_variable(upper=upper, objective=0.0, is_integer=True)

    def add_binary(self) -> int:
        """A variable in {0, 1}; returns its index."""
        return self.add_integer(upper=1)

    def add_at_most(self, terms: Terms, limit: float) -> None:
        """sum of terms <= limit."""
        self._add_row(terms, lower=-math.inf, upper=limit)

    def add_equal(self, terms: Terms, value: float) -> None:
        """sum of terms == value."""
        self._add_row(terms, lower=value, upper=value)

    def _add_variable(self, *, upper: float, objective: float, is_integer: bool) -> int:
        self.is_integer.append(is_integer)
        self.upper.append(upper)
        self.objective.append(objective)
        return len(self.objective) - 1

    def _add_row(self, terms: Terms, *, lower: float, upper: float) -> None:
        for coefficient, column in terms:
            self.coefficients.append(coefficient)
            self.columns.append(column)
        self.row_starts.append(len(self.columns))
        self.row_lower.append(lower)
        self.row_upper.append(upper)


def packing_model(
    row_limits: Sequence[float], columns: Iterable[tuple[int, float, Mapping[int, float]]]
) -> MixedIntegerModel:
    """maximise sum of value * y, use of each row <= its limit, y in {0 .. upper}.

    A column is (upper, value, use of rows).
    """
    model = MixedIntegerModel()
    terms: list[list[tuple[float, int]]] = [[] for _ in row_limits]
    for upper, value, use_of_rows in columns:
        variable = model.add_integer(upper=upper)
        model.objective[variable] = value
        for row, use in use_of_rows.items():
            terms[row].append((use, variable))
    for row, limit in enumerate(row_limits):
        model.add_at_most(terms[row], limit)
    return model


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveLimits:
    """When a solver stops by itself.

    `node_limit` ends it after so many branches, whatever the time; None sets no such limit.
    """

    time_limit_s: float
    relative_gap: float
    seed: int
    node_limit: int | None = None


class SolveWatcher(Protocol):
    """Callbacks of a running solver, on the thread that called `solve`.

    An exception raised here (Ctrl-C included) stops the solver and leaves `solve`.
    """

    def on_solution(self, values: Sequence[float]) -> None:
        """Called with each better solution, by variable index, including the last one."""

    def on_bound(self, upper_bound: float) -> None:
        """The solver's proven bound on the objective now; may repeat, may be infinite."""

    def should_stop(self) -> bool:
        """Asked every 50 ms; True ends the solve."""


class LastSolution:
    """A watcher that keeps the best solution; the bound is the outcome's."""

    def __init__(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        self._should_stop = should_stop
        self.values: list[float] | None = None

    def on_solution(self, values: Sequence[float]) -> None:
        self.values = list(values)

    def on_bound(self, upper_bound: float) -> None:
        pass

    def should_stop(self) -> bool:
        return self._should_stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveOutcome:
    """The end of a solve, the bound proven by then and, in words, the solver and why that one."""

    upper_bound: float
    cause: StopCause
    solver: str = ""
