"""One look at one thing."""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial


class State(StrEnum):
    """`NOTE`: nothing is wrong, but the operator should know."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """`remedy` is empty where nothing is to be done."""

    state: State
    check: str
    said: str
    remedy: str = ""


ok = partial(Finding, State.OK)
note = partial(Finding, State.NOTE)
warning = partial(Finding, State.WARNING)
failed = partial(Finding, State.FAILED)
