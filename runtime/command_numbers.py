"""Numbers of command lines, refused with the value and what would be right."""

import argparse
import re
from decimal import Decimal


def port_number(text: str) -> int:
    if text.isdecimal() and int(text) < 1 << 16:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no port; give 0 to 65535")


def positive_int(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")


SIZE_HELP = "bytes, or with a unit: 220M, 24GB (powers of 1000), 24GiB (powers of 1024)"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
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


def positive_seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if 0 < number < float("inf"):
        return number
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")


def ratio(text: str) -> float:
    """A share of what is possible; 0 would be nothing."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if 0 < number <= 1:
        return number
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0 and up to 1")
