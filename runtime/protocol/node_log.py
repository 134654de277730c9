"""Lines of a node's log, as its agent tells them to helixweb: few, short, and without secrets."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from runtime.protocol.bounds import UnixTime

MAX_LINES = 100
MAX_LINE_CHARS = 500


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


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


class LogLine(_Message):
    """`at_s`: seconds since 1970 by the node's own clock."""

    at_s: UnixTime
    source: LogSource
    level: LogLevel
    text: str = Field(max_length=MAX_LINE_CHARS)


class LogBatch(_Message):
    """POST /api/v1/agent/log: what is new, the oldest line first.

    A line may come twice when the answer to the first time was lost.
    """

    lines: tuple[LogLine, ...] = Field(min_length=1, max_length=MAX_LINES)
