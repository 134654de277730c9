"""Numbers of command lines, refused with the value and what would be right."""

import argparse


def port_number(text: str) -> int:
    if text.isdecimal() and int(text) < 1 << 16:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no port; give 0 to 65535")


def positive_int(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")


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
