"""Levels and sources of the lines of a node's log."""

from enum import StrEnum


class LogLevel(StrEnum):
    """How much a line matters, the least first."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogSource(StrEnum):
    """The process that wrote a line."""

    AGENT = "agent"
    STAGE = "stage"
