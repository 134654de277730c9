"""Chance as the annealing loops draw it."""

import numpy as np

_MODULUS = 2147483647
_MULTIPLIER = 48271
# Acceptance draws its logarithm from a table: those of C libraries may differ in a bit.
_LOGARITHMS_SIZE = 4096
MINUS_LOGARITHMS = -np.log((np.arange(_LOGARITHMS_SIZE) + 0.5) / _LOGARITHMS_SIZE)


def first_random(seed: int) -> int:
    """The generator's start for any seed of 0 or more."""
    return next_random(next_random(seed % (_MODULUS - 1) + 1))


def next_random(state: int) -> int:
    """Park and Miller's generator; never leaves 1 .. 2**31 - 2."""
    return state * _MULTIPLIER % _MODULUS
