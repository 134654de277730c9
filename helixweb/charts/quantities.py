"""Bytes, bit rates and durations as people read them. Decimal prefixes: 1 GB is 1e9 bytes."""

from planner.units import BITS_PER_BYTE

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def bytes_text(count_bytes: float) -> str:
    """1.53e9 -> 1.53 GB."""
    return _prefixed(count_bytes, "B")


def bit_rate_text(bytes_per_s: float) -> str:
    """1.25e9 bytes/s -> 10 Gbit/s."""
    return _prefixed(bytes_per_s * BITS_PER_BYTE, "bit/s")


def duration_text(seconds: float) -> str:
    """0.055 -> 55 ms."""
    if seconds == 0:
        return "0 ms"
    if seconds < 1e-3:
        return f"{_three_digits(seconds * 1e6)} µs"
    if seconds < 1:
        return f"{_three_digits(seconds * 1e3)} ms"
    return f"{_three_digits(seconds)} s"


def age_text(seconds: float) -> str:
    """How long ago, as coarsely as people say it: 12 s, 5 min, 3 h, 2 d."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _prefixed(value: float, unit: str) -> str:
    for size, prefix in _PREFIXES:
        if value >= size * 0.9995:
            return f"{_three_digits(value / size)} {prefix}{unit}"
    return f"{_three_digits(value)} {unit}"


def _three_digits(value: float) -> str:
    """At most three significant digits, never an exponent for what fits."""
    return f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"
