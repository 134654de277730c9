"""Fields of forms whose text is one thing a line."""

from collections.abc import Callable
from typing import TypeVar

from django.core.exceptions import ValidationError

from planner.domain.rules import InvalidRules

T = TypeVar("T")


def parsed_lines(parse: Callable[[str], T], text: str) -> T:
    """What `parse` makes of `text`. Raises ValidationError with what is wrong with it."""
    try:
        return parse(text)
    except InvalidRules as error:
        raise ValidationError(str(error)) from error
