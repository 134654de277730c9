"""Exceptions of services that refuse; REST answers with problem documents (`problems.py`)."""


class Refused(Exception):
    """The state of the site forbids what was asked for.

    Each reason names the value and the remedy. `default_code` is the error code of the REST API,
    which gives the reasons as a list where they are `listed`.
    """

    default_code = "conflict"
    listed = False

    def __init__(self, *reasons: object) -> None:
        self.reasons = tuple(map(str, reasons))
        super().__init__(*self.reasons)

    def __str__(self) -> str:
        return " ".join(self.reasons)


class Conflict(Refused):
    """The state of a row forbids the action; the reason says what to do instead."""


class Unusable:
    """Mixin of refusals because something exists but cannot be used: 422."""


class NotAdmitted:
    """Mixin of what this client may not do, whatever the state: 403."""
