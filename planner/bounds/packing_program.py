"""A linear program over columns that are found one by one (column generation), by HiGHS.

maximise sum over columns of value * y, subject to rows of use <= limit, y >= 0.

HiGHS solves it also where Gurobi is licensed: on the published clusters Gurobi proved the same
bounds, to 1e-9, in the same CPU time (het42's bound on served tokens: 1.9 to 2.0 s by either).
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import highspy
import numpy as np
import numpy.typing as npt

from planner.domain.errors import PlannerError

Floats = npt.NDArray[np.float64]

_PRIMAL = 4  # HiGHS' number


class LinearProgramFailed(PlannerError):
    """HiGHS ended without an optimum where one exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingSolution:
    """The optimum: its value, the price of every row (>= 0) and the amount of every column."""

    value: float
    row_prices: Floats
    amounts: Floats


class PackingProgram:
    """Keeps its basis from one solve to the next, so that a new column costs a few pivots.

    `is_primal` chooses primal simplex, which continues from a basis of before new columns. For many
    columns at once it took half of the time (bound on served tokens: geo24 1.4 s for 3.5 s).
    """

    def __init__(self, row_limits: Sequence[float], *, is_primal: bool = False) -> None:
        self._solver = highspy.Highs()  # type: ignore[no-untyped-call]
        if is_primal:
            self._solver.setOptionValue("simplex_strategy", _PRIMAL)
        for option, value in (("output_flag", False), ("threads", 1), ("presolve", "off")):
            self._solver.setOptionValue(option, value)
        self._solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
        self.num_columns = self.num_rows = 0
        self._known: set[Hashable] = set()
        self.add_rows(row_limits)

    def add_rows(self, limits: Sequence[float]) -> None:
        """Add rows, which no column uses yet."""
        nothing = np.array([], dtype=np.int32)
        for limit in limits:
            self._solver.addRow(-highspy.kHighsInf, float(limit), 0, nothing, np.array([]))
        self.num_rows += len(limits)

    def add_column(
        self, use_of_rows: Mapping[int, float], *, value: float, upper: float = highspy.kHighsInf
    ) -> None:
        """One more column, of which between 0 and `upper` may be taken."""
        rows = sorted(row for row, use in use_of_rows.items() if use != 0)
        self._solver.addCol(
            value,
            0.0,
            upper,
            len(rows),
            np.array(rows, dtype=np.int32),
            np.array([use_of_rows[row] for row in rows]),
        )
        self.num_columns += 1

    def add_unknown(self, key: Hashable, use_of_rows: Mapping[int, float], *, value: float) -> bool:
        """Add the column unless one was added by that key; returns whether it was added."""
        if key in self._known:
            return False
        self._known.add(key)
        self.add_column(use_of_rows, value=value)
        return True

    def solve(self) -> PackingSolution:
        """Solve the linear program. Raises LinearProgramFailed."""
        self._solver.run()
        status = self._solver.getModelStatus()
        if status not in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kModelEmpty):
            raise LinearProgramFailed(
                f"a bound's linear program ended as {self._solver.modelStatusToString(status)!r}; "
                "it always has an optimum, so please report this problem"
            )
        solution = self._solver.getSolution()
        return PackingSolution(
            value=float(self._solver.getInfo().objective_function_value),
            row_prices=np.maximum(np.array(solution.row_dual), 0.0),
            amounts=np.array(solution.col_value),
        )
