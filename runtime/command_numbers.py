"""Numbers of command lines, refused with the value and what would be right."""

import argparse
import math
import re
from decimal import Decimal


def port_number(text: str) -> int:
    if text.isascii() and text.isdecimal() and int(text[:6]) < 1 << 16:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no port; give 0 to 65535")


def positive_int(text: str) -> int:
    if text.isascii() and text.isdecimal() and 0 < int(text[:20]) < 1 << 63:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")


SIZE_HELP = "bytes, or with a unit: 220M, 24GB (powers of 1000), 24GiB (powers of 1024)"
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def size_bytes(text: str) -> int:
    """A number of bytes: 220000000, 220M, 220MB or 24GiB."""
    match = _SIZE.fullmatch(text.strip())
    if match is not None and (match[2] or not match[3]):
        base = 1024 if match[3] else 1000
        size = int(Decimal(match[1]) * base ** _POWERS[match[2].upper()])
        if 0 < size < 1 << 63:
            return size
    raise argparse.ArgumentTypeError(f"{text!r} is no size above 0; give {SIZE_HELP}")


def number_or_nan(text: str) -> float:
    """NaN, which no bounds admit, for what is no number; Python reads digits of all scripts."""
    try:
        return float(text) if text.isascii() else math.nan
    except ValueError:
        return math.nan


def positive_seconds(text: str) -> float:
    number = number_or_nan(text)
    if 0 < number < float("inf"):
        return number
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")


def ratio(text: str) -> float:
    """A share of what is possible; 0 would be nothing."""
    number = number_or_nan(text)
    if 0 < number <= 1:
        return number
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0 and up to 1")
