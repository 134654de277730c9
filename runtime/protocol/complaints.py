"""What pydantic says of a value, as we say it."""

from collections.abc import Mapping
from typing import Any

_PREFIX = "Value error, "  # before what our own validators say


def complaint(problem: Mapping[str, Any]) -> str:
    """The message of one of a ValidationError's `errors()`."""
    message: str = problem["msg"]
    return message.removeprefix(_PREFIX)
