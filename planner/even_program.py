"""The most even solution of linear equations within bounds: a quadratic program by its dual.

minimise  sum over v of x_v^2 / (2 weight_v)
s.t.      A x = b,   0 <= x_v <= upper_v

For prices y of the equations the best x is clip(weight * A^T y, 0, upper); what is left is to find
prices at which A x = b. A damped Newton method on the dual, which is smooth and convex, finds them
in some ten steps and, once it knows which bounds hold, exactly. Equations that share no variable
with each other are eliminated from its steps first; the matrix of the others is dense.
"""

from dataclasses import dataclass

import numpy as np

from planner.flow_graph import Floats, Integers

_TOLERANCE = 1e-12
_ACCEPTED = 1e-9  # where weights are so unequal that rounding allows no better
_MOST_STEPS = 200
_FEWEST_SOLVES = 4
# Of all steps, in cubed equations: some tenths of a second.
_MOST_WORK = 6e9
_STALLED_STEPS = 5
_FIRST_DAMPING = 1e-4
_LEAST_DAMPING = 1e-14
_GREATEST_DAMPING = 1e2
_SUFFICIENT_DECREASE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Equations:
    """A as triplets: A[rows[i], columns[i]] += values[i]; b is `right_sides_R`, about 1 or less."""

    rows: Integers
    columns: Integers
    values: Floats
    right_sides_R: Floats


def most_even(equations: Equations, *, weights_V: Floats, upper_V: Floats) -> Floats | None:
    """x of the program above, every equation met within 1e-12, or 1e-9 where rounding forbids it.

    Weights are above 0. None where the work allowed ends before that, which for a thousand
    equations is at once.
    """
    rows, columns, values = equations.rows, equations.columns, equations.values
    right_R = equations.right_sides_R
    num_rows, num_columns = len(right_R), len(weights_V)
    solves_left = int(_MOST_WORK / max(1, num_rows) ** 3)
    if solves_left < _FEWEST_SOLVES:
        return None
    pairs = _Pairs(equations, num_rows=num_rows)
    full_diagonal_R = (
        np.bincount(rows, values * values * weights_V[columns], minlength=num_rows)
        + np.finfo(np.float64).tiny
    )

    def primal(prices_R: Floats) -> tuple[Floats, Floats, float]:
        """Cheapest x at these prices, what A x misses, and the dual's value (to be least)."""
        pull_V = np.bincount(columns, values * prices_R[rows], minlength=num_columns)
        x_V = np.clip(weights_V * pull_V, 0.0, upper_V)
        missed_R = right_R - np.bincount(rows, values * x_V[columns], minlength=num_rows)
        value = float((pull_V * x_V - x_V * x_V / (2 * weights_V)).sum() - right_R @ prices_R)
        return x_V, missed_R, value

    prices_R = np.zeros(num_rows)
    x_V, missed_R, value = primal(prices_R)
    best_V, least, stalled, damping = x_V, np.inf, 0, _FIRST_DAMPING
    for _ in range(_MOST_STEPS):
        worst = float(np.abs(missed_R).max(initial=0.0))
        stalled = 0 if worst < least / 2 else stalled + 1
        if worst < least:
            best_V, least = x_V, worst
        if least <= _TOLERANCE or (least <= _ACCEPTED and stalled >= _STALLED_STEPS):
            return best_V
        pull_V = np.bincount(columns, values * prices_R[rows], minlength=num_columns)
        is_free = (pull_V >= 0) & (weights_V * pull_V <= upper_V)
        hessian_RR = pairs.product(np.where(is_free, weights_V, 0.0))
        while True:
            if solves_left == 0:
                return best_V if least <= _ACCEPTED else None
            solves_left -= 1
            direction_R = pairs.solved(hessian_RR, damping * full_diagonal_R, missed_R)
            tried_R = prices_R + direction_R
            tried_V, tried_missed_R, tried = primal(tried_R)
            wanted = _SUFFICIENT_DECREASE * float(missed_R @ direction_R)
            if (
                tried <= value - wanted
                or np.abs(tried_missed_R).max() <= worst / 2
                or damping > _GREATEST_DAMPING  # the value's own rounding hides the decrease
            ):
                break
            damping *= 10
        damping = max(_LEAST_DAMPING, damping / 10)
        prices_R, x_V, missed_R, value = tried_R, tried_V, tried_missed_R, tried
    return best_V if least <= _ACCEPTED else None


class _Pairs:
    """Every two entries of one column of A: what A diag(d) A^T is a sum of."""

    def __init__(self, equations: Equations, *, num_rows: int) -> None:
        order = np.argsort(equations.columns, kind="stable")
        columns = equations.columns[order]
        rows, values = equations.rows[order], equations.values[order]
        starts = np.searchsorted(columns, columns, side="left")
        sizes = np.searchsorted(columns, columns, side="right") - starts
        left = np.repeat(np.arange(len(columns)), sizes)
        within = np.arange(len(left)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        right = starts[left] + within
        self._columns = columns[left]
        self._products = values[left] * values[right]
        touches_RR = np.zeros((num_rows, num_rows), dtype=np.bool_)
        touches_RR[rows[left], rows[right]] = True
        is_apart, is_touched = np.zeros((2, num_rows), dtype=np.bool_)
        for row in np.argsort(touches_RR.sum(axis=1), kind="stable"):
            if not is_touched[row]:
                is_apart[row] = True
                is_touched |= touches_RR[row]
        # Equations of which no two share a variable come first.
        self._num_apart = int(is_apart.sum())
        self._order_R = np.argsort(~is_apart, kind="stable")
        place_R = np.argsort(self._order_R)
        self._cells = place_R[rows[left]] * num_rows + place_R[rows[right]]
        self._num_rows = num_rows

    def product(self, diagonal_V: Floats) -> Floats:
        """A diag(d) A^T, square in the equations, in the order of `solved`."""
        used = diagonal_V[self._columns] > 0
        flat: Floats = np.bincount(
            self._cells[used],
            self._products[used] * diagonal_V[self._columns[used]],
            minlength=self._num_rows * self._num_rows,
        ).astype(np.float64, copy=False)
        return flat.reshape(self._num_rows, self._num_rows)

    def solved(self, product_RR: Floats, added_R: Floats, right_R: Floats) -> Floats:
        """x of (product + diag(added)) x = right."""
        count, order_R = self._num_apart, self._order_R
        added, right = added_R[order_R], right_R[order_R]
        own = np.diagonal(product_RR)[:count] + added[:count]
        cross = product_RR[count:, :count]
        shares = cross / own
        left = product_RR[count:, count:] + np.diag(added[count:]) - shares @ cross.T
        dense = np.linalg.solve(left, right[count:] - shares @ right[:count])
        found_R = np.empty(self._num_rows)
        found_R[order_R] = np.concatenate(((right[:count] - dense @ cross) / own, dense))
        return found_R
