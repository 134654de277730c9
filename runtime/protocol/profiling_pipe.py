"""JSON lines between an agent and the process that measures its node, over the child's pipes.

The agent writes one `ProfilingLaunch`. Before each step that it times the child writes `Asking` and
waits for a line: `go`, or `again` when traffic came while it timed the last one. At the end it
writes `Measured`, `Checked` or `CannotMeasure`, and exits. Logs go to stderr.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from runtime.protocol.profiling import MeasuredPoint, NodeMeasurement, ProfileOrder
from runtime.protocol.stage_pipe import Computing, JsonLine

GO, AGAIN = b"go\n", b"again\n"


class ProfilingLaunch(Computing, JsonLine):
    """What to measure, and what a stage of this node would have."""

    order: ProfileOrder


class Asking(JsonLine):
    """May the next step be timed? `done` is the share that was."""

    event: Literal["asking"] = "asking"
    done: float = Field(ge=0, le=1.0)


class Measured(JsonLine):
    """The result; the agent knows the rest of it."""

    event: Literal["measured"] = "measured"
    measurement: NodeMeasurement


class Checked(JsonLine):
    """The steps of an order's `check`, as long as they took here."""

    event: Literal["checked"] = "checked"
    points: tuple[MeasuredPoint, ...]


class CannotMeasure(JsonLine):
    """One line for people, with the remedy."""

    event: Literal["cannot_measure"] = "cannot_measure"
    message: str


_Event = Asking | Measured | Checked | CannotMeasure
ProfilingEvent = Annotated[_Event, Field(discriminator="event")]
_EVENTS: TypeAdapter[_Event] = TypeAdapter(ProfilingEvent)


def parse_profiling_event(line: bytes) -> _Event:
    """Raises pydantic.ValidationError."""
    return _EVENTS.validate_json(line)
