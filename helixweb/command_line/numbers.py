"""Numbers within bounds, as types of arguments."""

import argparse
from collections.abc import Callable
from typing import Annotated, TypeAlias, TypeVar

NumberT = TypeVar("NumberT", int, float)


def number_that(
    fits: Callable[[NumberT], bool], wanted: str, kind: type[NumberT]
) -> Callable[[str], NumberT]:
    """A type for argparse; `wanted` says what fits."""

    def parse(text: str) -> NumberT:
        try:
            value = kind(text) if text.isascii() and "_" not in text else None
        except ValueError:
            value = None
        if value is None or not fits(value):
            raise argparse.ArgumentTypeError(f"{text!r} is not allowed; give {wanted}")
        return value

    return parse


_MOST = 1e18  # in another unit it is still a number that JSON has
seconds = number_that(lambda value: 0 < value <= 86_400, "seconds above 0, e.g. 30", float)
positive = number_that(lambda value: 0 < value <= _MOST, "a number above 0, at most 1e18", float)
not_negative = number_that(lambda value: 0 <= value <= _MOST, "a number from 0 to 1e18", float)
temperature = number_that(lambda value: 0 <= value <= 2, "a number from 0 to 2", float)
whole_number = number_that(lambda value: 0 < value < 2**31, "a whole number from 1 on", int)
index = number_that(lambda value: 0 <= value < 2**31, "a whole number from 0 on", int)
port = number_that(lambda value: 0 < value < 2**16, "1 to 65535", int)
# The types of parameters of commands.
Seconds: TypeAlias = Annotated[float, seconds]
Positive: TypeAlias = Annotated[float, positive]
Count: TypeAlias = Annotated[int, whole_number]
Port: TypeAlias = Annotated[int, port]
