"""One look at one thing."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """`NOTE`: nothing is wrong, but whoever runs the site should know."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`remedy` is empty where nothing is to be done."""

    check: str
    state: State
    said: str
    remedy: str = ""


def ok(check: str, said: str) -> Finding:
    """Nothing to do."""
    return Finding(check=check, state=State.OK, said=said)


def note(check: str, said: str, remedy: str = "") -> Finding:
    """Good to know."""
    return Finding(check=check, state=State.NOTE, said=said, remedy=remedy)


def warning(check: str, said: str, remedy: str) -> Finding:
    """Works, but not for long or not well."""
    return Finding(check=check, state=State.WARNING, said=said, remedy=remedy)


def failed(check: str, said: str, remedy: str) -> Finding:
    """Does not work."""
    return Finding(check=check, state=State.FAILED, said=said, remedy=remedy)
