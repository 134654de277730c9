"""What is wrong, in words for people: errors that end a program, and what pydantic says."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what only raises or words an error starts without pydantic
    from pydantic import ValidationError

_PREFIX = "Value error, "  # before what our own validators say
_AS_JSON = {"False": "false", "True": "true", "None": "null"}


class StartRefused(Exception):
    """Ends a program by one line and status 2: the message says what to change, and how."""


def complaint(problem: Mapping[str, Any]) -> str:
    """The message of one of a ValidationError's `errors()`."""
    if problem["type"] == "model_type":  # pydantic names the class
        return "Input should be an object"
    message: str = problem["msg"]
    if problem["type"] in ("literal_error", "none_required") and " or " not in message:
        only = message.removeprefix("Input should be ")
        return f"Only {_AS_JSON.get(only, only)} is supported"
    return message.removeprefix(_PREFIX)


def first_complaint(error: "ValidationError", *, whole: str = "") -> str:
    """The first message behind the place of its value; `whole` names the place of a whole file."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"])) or whole
    return f"{where}: {complaint(first)}" if where else complaint(first)
