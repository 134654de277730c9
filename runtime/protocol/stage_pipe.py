"""JSON lines between an agent and its children, over their stdin and stdout; logs go to stderr.

To a stage the agent writes one `StageLaunch` line and keeps stdin open; closing it means stop. The
stage writes `StageEvent` lines: loading and fetching*, then ready, then stats once a second; or
failed, and exits 1. After that the agent may write `AddOrder` lines, one generation each that is to
be served beside: loading and fetching*, then ready, or cannot_add, while the others go on. Retired
ends a generation at the coordinator's word.

To the process that measures its node the agent writes one `ProfilingLaunch`. Before each step that
it times the child writes `Asking` and waits for a line: `go`, or `again` when traffic came while it
timed the last one. At the end it writes `Measured`, `Checked` or `CannotMeasure`, and exits.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from runtime.protocol.control import StageAssignment, StageStats
from runtime.protocol.data_security import DataSecurity
from runtime.protocol.endpoints import CurveKey, ListenEndpoint
from runtime.protocol.engines import EngineSettings
from runtime.protocol.message import Message
from runtime.protocol.profiling import MeasuredPoint, NodeMeasurement, ProfileOrder
from runtime.protocol.weight_access import WeightAccess
from runtime.protocol.weight_fetch import WeightFetch

LEAVE_WITHIN_S = 20.0
GO, AGAIN = b"go\n", b"again\n"


class JsonLine(Message):
    """A message that is one line."""

    def to_line(self) -> bytes:
        """One JSON object and a newline."""
        return self.model_dump_json().encode() + b"\n"


class Computing(Message):
    """What each process gets that computes layers on a node.

    `memory_budget_bytes` holds weights, activations and KV cache of all ranks together; each has an
    equal part. `relative_speed` below 1 makes each step take 1/relative_speed as long (demo agents
    on one machine). Without `weights` none are fetched.
    """

    memory_budget_bytes: int = Field(gt=0)
    relative_speed: float = Field(default=1.0, gt=0, le=1.0)
    threads: int = Field(default=1, ge=1)
    weights: WeightAccess | None = None
    engine: EngineSettings = EngineSettings()


class StageBase(Computing):
    """What each stage of a node gets. Told to end by SIGTERM, it waits for `leave_within_s` at most
    until its requests go on elsewhere."""

    name: str = Field(min_length=1)
    bind: ListenEndpoint
    secret_key_file: str
    public_key: CurveKey
    data_security: DataSecurity = DataSecurity.CURVE
    leave_within_s: float = Field(default=LEAVE_WITHIN_S, gt=0)


class StageLaunch(StageBase, JsonLine):
    """What the stage must run and with what; the first line on its stdin."""

    assignment: StageAssignment


class AddOrder(JsonLine):
    """Serve this generation beside the others: of the same checkpoint, by the same rules."""

    kind: Literal["add"] = "add"
    assignment: StageAssignment


class LoadingEvent(JsonLine):
    """Bytes of weights read so far for a generation, of all it must read."""

    event: Literal["loading"] = "loading"
    generation: int = Field(ge=1)
    done_bytes: int = Field(ge=0)
    total_bytes: int = Field(ge=0)


class FetchingEvent(JsonLine):
    """How far the stage is with weights that were not on its machine, of all its generations."""

    event: Literal["fetching"] = "fetching"
    fetch: WeightFetch


class ReadyEvent(JsonLine):
    """Weights are in memory, the KV pool is made, data frames of the generation are received."""

    event: Literal["ready"] = "ready"
    generation: int = Field(ge=1)
    stats: StageStats


class StatsEvent(JsonLine):
    """Once a second while serving."""

    event: Literal["stats"] = "stats"
    stats: StageStats


class FailedEvent(JsonLine):
    """The stage cannot run the assignment and exits 1; `message` says what and the remedy."""

    event: Literal["failed"] = "failed"
    message: str


class RetiredEvent(JsonLine):
    """A generation is served no more, and what only it needed is forgotten."""

    event: Literal["retired"] = "retired"
    generation: int = Field(ge=1)


class CannotAddEvent(JsonLine):
    """A generation cannot be served beside the others, which go on; `message` says why.

    `restart_helps`: a process of its own might.
    """

    event: Literal["cannot_add"] = "cannot_add"
    generation: int = Field(ge=1)
    message: str
    restart_helps: bool


StageEvent = (
    LoadingEvent
    | FetchingEvent
    | ReadyEvent
    | StatsEvent
    | FailedEvent
    | RetiredEvent
    | CannotAddEvent
)

_EVENT: TypeAdapter[StageEvent] = TypeAdapter(Annotated[StageEvent, Field(discriminator="event")])


def parse_event(line: bytes | str) -> StageEvent:
    """A line of the stage's stdout. Raises pydantic.ValidationError for anything else."""
    return _EVENT.validate_json(line)


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
