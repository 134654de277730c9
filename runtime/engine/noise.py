"""Numbers that look random and depend on (seed, position) alone."""

_MASK_64 = (1 << 64) - 1


def mixed(seed: int, position: int) -> int:
    """64 well mixed bits (splitmix64), so that neighbouring positions have nothing in common."""
    bits = (seed + (position + 1) * 0x9E3779B97F4A7C15) & _MASK_64
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK_64
    return bits ^ (bits >> 31)
