"""Numbers that look random and depend on (seed, position) alone."""

_MASK_64 = (1 << 64) - 1


def mixed(seed: int, position: int) -> int:
    """64 well mixed bits, so that neighbouring seeds and positions have nothing in common.

    The seed is mixed by itself first: seeds at a fixed distance, as those of the choices of one
    request, must not give each other's numbers at other positions.
    """
    return _splitmix(_splitmix(seed) + position)


def _splitmix(bits: int) -> int:
    """One step of splitmix64."""
    bits = (bits + 0x9E3779B97F4A7C15) & _MASK_64
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK_64
    return bits ^ (bits >> 31)
