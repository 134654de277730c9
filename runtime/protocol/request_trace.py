"""Where the time of one request went: what the coordinator tells helixweb of it (JSON)."""

from enum import StrEnum

from pydantic import Field

from runtime.protocol.data import Hop
from runtime.protocol.message import Count, Message, SmallCount, UnixTime


class PartKind(StrEnum):
    """What a request did for a while."""

    QUEUE = "queue"  # at the coordinator, for a pipeline with room
    LOST = "lost"  # an attempt that had to be begun anew
    WAIT = "wait"  # at a node, for its step
    COMPUTE = "compute"  # in steps of a node
    ENGINE = "engine"  # in a whole-model instance, which does not tell what it did, and on the way
    TRANSFER = "transfer"  # between two nodes, or a node and the coordinator
    ENDING = "ending"  # after its last token, until the client or a timeout ended it
    UNMEASURED = "unmeasured"  # a stage did not tell, or an answer too long to be recorded


class PartPhase(StrEnum):
    """Which part of a request the time went to."""

    PROMPT = "prompt"
    DECODE = "decode"


class TracePart(Message):
    """`seconds` of the end-to-end time, `count` times. `to` is set for a transfer `node` -> `to`.

    The parts of a request follow one another: their sum is its end-to-end time.
    """

    node: str
    to: str | None = None
    kind: PartKind
    phase: PartPhase
    seconds: float
    count: Count


class TraceRow(Message):
    """A line of the time line: spans of one kind at one place.

    A span is (begins, ends, busy, count), the first two seconds after the arrival. Where many are
    drawn as one, `busy` of its seconds were spent on the `count` it holds.
    """

    node: str
    to: str | None = None
    kind: PartKind
    phase: PartPhase
    spans: tuple[tuple[float, float, float, int], ...]


class RequestTrace(Message):
    """One request. `request` is 16 hex digits; `arrived_at` Unix seconds; times in seconds.

    `outcome`: stop or length, cancelled by the client, or the code of the error it ended with.
    `token_times_s` are after the arrival, at the coordinator, at most the first thousands.
    """

    request: str = Field(pattern=r"^[0-9a-f]{16}$")
    generation: int = Field(ge=1, lt=2**31)
    model_name: str
    arrived_at: UnixTime
    outcome: str = Field(max_length=64)
    prompt_tokens: SmallCount
    output_tokens: SmallCount
    queue_s: float = Field(ge=0)
    ttft_s: float | None = Field(default=None, ge=0)
    e2e_s: float = Field(ge=0)
    attempts: int = Field(ge=1, lt=2**31)
    pipeline: tuple[Hop, ...]
    parts: tuple[TracePart, ...]
    rows: tuple[TraceRow, ...]
    token_times_s: tuple[float, ...]
