"""How many examples Hypothesis makes up: all of them, or fewer in the quick tests."""

from hypothesis import settings

_FULL = 100  # of a profile that says nothing else


def examples(count: int) -> int:
    """`count` under the full profile, and in proportion under a smaller one; at least 1."""
    return max(1, count * settings().max_examples // _FULL)
