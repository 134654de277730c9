"""JSON lines between an agent and the process that measures its node, over the child's pipes.

The agent writes one `ProfilingLaunch`. Before each step that it times the child writes `Asking` and
waits for a line: `go`, or `again` when traffic came while it timed the last one. At the end it
writes `Measured`, or `CannotMeasure`, and exits. Logs go to stderr.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from runtime.protocol.profiling import NodeMeasurement, ProfileOrder

GO, AGAIN = b"go\n", b"again\n"


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def to_line(self) -> bytes:
        """One JSON object and a newline."""
        return self.model_dump_json().encode() + b"\n"


class ProfilingLaunch(_Line):
    """What to measure, and what a stage of this node would have; see `StageLaunch`."""

    order: ProfileOrder
    memory_budget_bytes: int = Field(gt=0)
    relative_speed: float = Field(default=1.0, gt=0, le=1.0)
    threads: int = Field(default=1, ge=1)


class Asking(_Line):
    """May the next step be timed? `done` is the share that was."""

    event: Literal["asking"] = "asking"
    done: float = Field(ge=0, le=1.0)


class Measured(_Line):
    """The result; the agent knows the rest of it."""

    event: Literal["measured"] = "measured"
    measurement: NodeMeasurement


class CannotMeasure(_Line):
    """One line for people, with the remedy."""

    event: Literal["cannot_measure"] = "cannot_measure"
    message: str


ProfilingEvent = Annotated[Asking | Measured | CannotMeasure, Field(discriminator="event")]
_EVENTS: TypeAdapter[Asking | Measured | CannotMeasure] = TypeAdapter(ProfilingEvent)


def parse_profiling_event(line: bytes) -> Asking | Measured | CannotMeasure:
    """Raises pydantic.ValidationError."""
    return _EVENTS.validate_json(line)
