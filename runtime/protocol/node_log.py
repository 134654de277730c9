"""Lines of a node's log, as its agent tells them to helixweb: few, short, and without secrets."""

from pydantic import Field

from runtime.protocol.log_levels import LogLevel, LogSource
from runtime.protocol.message import Message, UnixTime

MAX_LINES = 100
MAX_LINE_CHARS = 500


class LogLine(Message):
    """`at_s`: seconds since 1970 by the node's own clock."""

    at_s: UnixTime
    source: LogSource
    level: LogLevel
    text: str = Field(max_length=MAX_LINE_CHARS)


class LogBatch(Message):
    """POST /api/v1/agent/log: what is new, the oldest line first.

    A line may come twice when the answer to the first time was lost.
    """

    lines: tuple[LogLine, ...] = Field(min_length=1, max_length=MAX_LINES)
