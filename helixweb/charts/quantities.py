"""Bytes, bit rates and durations as people read them. Decimal prefixes: 1 GB is 1e9 bytes."""

from planner.units import BITS_PER_BYTE, prefixed, three_digits
from planner.units import bytes_text as bytes_text


def bit_rate_text(bytes_per_s: float) -> str:
    """1.25e9 bytes/s -> 10 Gbit/s."""
    return prefixed(bytes_per_s * BITS_PER_BYTE, "bit/s")


def duration_text(seconds: float) -> str:
    """0.055 -> 55 ms."""
    if seconds == 0:
        return "0 ms"
    if seconds < 1e-3:
        return f"{three_digits(seconds * 1e6)} µs"
    if seconds < 1:
        return f"{three_digits(seconds * 1e3)} ms"
    return f"{three_digits(seconds)} s"


def age_text(seconds: float) -> str:
    """An age in one rounded unit: 12 s, 5 min, 3 h, 2 d."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
