"""Chance as the annealing loops draw it, and how long and boldly they anneal."""

from dataclasses import dataclass

import numpy as np

from planner.native import Packed

_MODULUS = 2147483647
_MULTIPLIER = 48271
# Acceptance draws its logarithm from a table: those of C libraries may differ in a bit.
_LOGARITHMS_SIZE = 4096
MINUS_LOGARITHMS = -np.log((np.arange(_LOGARITHMS_SIZE) + 0.5) / _LOGARITHMS_SIZE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """An annealing schedule: `moves` moves, temperature from `hot` down to `cold`."""

    moves: int
    hot: float
    cold: float
    seed: int

    def packed(self) -> Packed:
        """As C's `Cooling`."""
        return Packed(
            moves=self.moves,
            hot=float(self.hot),
            cooling=float((self.cold / self.hot) ** (1.0 / max(1, self.moves))),
            first_random=first_random(self.seed),
            minus_logarithms=MINUS_LOGARITHMS,
            num_logarithms=len(MINUS_LOGARITHMS),
        )


def first_random(seed: int) -> int:
    """The generator's start for any seed of 0 or more, in 1 .. 2**31 - 2."""
    return next_random(next_random(seed % (_MODULUS - 1) + 1))


def next_random(state: int) -> int:
    """Park and Miller's generator; never leaves 1 .. 2**31 - 2."""
    return state * _MULTIPLIER % _MODULUS
