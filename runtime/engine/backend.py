"""What a stage runs its steps with: a model, or the times of a profile. Both are a `Backend`."""

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Protocol

from runtime.engine.generation import Holdings
from runtime.engine.limits import EngineLimits
from runtime.engine.pages import KvCacheManager
from runtime.engine.sequence import RequestKey, Sequence, Work
from runtime.protocol.data import DType, Reason
from runtime.protocol.sampled import Logprobs


class CannotRun(Exception):
    """What keeps a stage from its assignment; the message says what, and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Layers [first, end) of a model, those opened first, and what a row and a token of it are."""

    first: int
    end: int
    num_layers: int
    hidden_size: int
    vocab_size: int
    dtype: DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A token sampled behind the last row of a chunk. `is_final`: its grammar allows no other."""

    token_id: int
    logprobs: Logprobs | None = None
    is_final: bool = False


class Rows(Protocol):
    """The rows of a step behind its last layer, as they go over the wire."""

    def gather(self, spans: Items[tuple[int, int]]) -> bytes | memoryview:
        """The bytes of the rows [start, end) of the step, one span after another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What became of the works of a step, by their index in it.

    `drawn`: a token for each that is sampled, but for those in `failed`, with a NACK's reason.
    """

    rows: Rows
    drawn: dict[int, Drawn] = field(default_factory=dict)
    failed: dict[int, Reason] = field(default_factory=dict)


class Backend(Protocol):
    """Used from one thread."""

    @property
    def shape(self) -> ModelShape: ...

    @property
    def kv_manager(self) -> KvCacheManager:
        """The pages its requests' keys and values are in."""

    @property
    def weights_bytes(self) -> int: ...

    @property
    def kv_bytes(self) -> int: ...

    @property
    def emulated(self) -> bool:
        """Whether it only takes the time that a model would."""

    @property
    def engine(self) -> str:
        """What computes the layers, and why, in words for people."""

    def is_ready(self, sequence: Sequence) -> bool:
        """Whether rows of the request can be part of a step now; if not, they can be soon: asking
        has what they need made, beside the steps."""

    @property
    def runs_beside(self) -> bool:
        """Whether a device computes a step while the thread that began it goes on."""

    def begin(self, step: Items[Work]) -> Callable[[], StepResult]:
        """Run the layers each work asks for, and sample where a token follows; what it returns
        waits for that when it is called, before the next step begins. Its requests may be forgotten
        meanwhile."""

    def forget(self, key: RequestKey) -> None:
        """A request ended; known or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A backend ready to run, the limits it was made for, and where it runs, for the log; a stage
    is made of it.

    `holdings` change its layers and pages; None: they stay as they are. `close` ends what else runs
    for it, behind its last step.
    """

    backend: Backend
    limits: EngineLimits
    device: str = ""
    holdings: Holdings | None = None
    close: Callable[[], None] = lambda: None
