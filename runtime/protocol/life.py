"""Which process of a stage is meant, where another may be in its place by then."""

LIFE_BYTES = 4


def life_of(incarnation: int) -> bytes:
    """Its 4 bytes, little-endian, in LEAVING and in the RETIRE that answers it. Raises
    OverflowError for an incarnation beyond 32 bits."""
    return incarnation.to_bytes(LIFE_BYTES, "little")
