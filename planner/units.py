"""Conversions between the units people write and the units the code uses.

Inside the code everything is bytes, seconds, tokens and ratios. Only forms, files and charts
speak of bits, and they come through here.
"""

BITS_PER_BYTE = 8


def bytes_per_s_from_gbit_per_s(gbit_per_s: float) -> float:
    """10 (Gbit/s) -> 1.25e9 (bytes/s)."""
    return gbit_per_s * 1e9 / BITS_PER_BYTE


def gbit_per_s_from_bytes_per_s(bytes_per_s: float) -> float:
    """1.25e9 (bytes/s) -> 10 (Gbit/s)."""
    return bytes_per_s * BITS_PER_BYTE / 1e9


def mbit_per_s_from_bytes_per_s(bytes_per_s: float) -> float:
    """12.5e6 (bytes/s) -> 100 (Mbit/s)."""
    return bytes_per_s * BITS_PER_BYTE / 1e6


def bytes_per_s_from_mbit_per_s(mbit_per_s: float) -> float:
    """100 (Mbit/s) -> 12.5e6 (bytes/s)."""
    return mbit_per_s * 1e6 / BITS_PER_BYTE


def gib_from_bytes(count_bytes: float) -> float:
    """2**30 (bytes) -> 1 (GiB)."""
    return count_bytes / 2**30
