"""How data frames are protected on their way; the same at all ends of a deployment."""

from enum import StrEnum


class DataSecurity(StrEnum):
    """`CLEAR` is for networks that only trusted machines are on, and that are so fast that
    encryption would hold them up: peers name themselves by their keys and prove nothing."""

    CURVE = "curve"
    CLEAR = "clear"
