"""Conversions between the units people write and the units the code uses.

Inside the code everything is bytes, seconds, tokens and ratios. Only forms, files, charts and
messages use other units, and they come through here. Decimal prefixes: 1 GB is 1e9 bytes.
"""

BITS_PER_BYTE = 8
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def bytes_per_s_from_gbit_per_s(gbit_per_s: float) -> float:
    """10 (Gbit/s) -> 1.25e9 (bytes/s)."""
    return gbit_per_s * 1e9 / BITS_PER_BYTE


def mbit_per_s_from_bytes_per_s(bytes_per_s: float) -> float:
    """12.5e6 (bytes/s) -> 100 (Mbit/s)."""
    return bytes_per_s * BITS_PER_BYTE / 1e6


def bytes_per_s_from_mbit_per_s(mbit_per_s: float) -> float:
    """100 (Mbit/s) -> 12.5e6 (bytes/s)."""
    return mbit_per_s * 1e6 / BITS_PER_BYTE


def bytes_text(count_bytes: float) -> str:
    """1.53e9 -> 1.53 GB."""
    return prefixed(count_bytes, "B")


def prefixed(value: float, unit: str) -> str:
    """1.53e9, "B" -> 1.53 GB."""
    for size, prefix in _PREFIXES:
        if value >= size * 0.9995:
            return f"{three_digits(value / size)} {prefix}{unit}"
    return f"{three_digits(value)} {unit}"


def three_digits(value: float) -> str:
    """A number with at most three significant digits, without an exponent if it fits."""
    return f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"
