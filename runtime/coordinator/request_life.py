"""What happened to one request from its arrival to its end, on a pipeline or at instances.

Metrics, reports and traces are made of it.
"""

from array import array
from dataclasses import dataclass

from planner.domain.pipeline import Pipeline
from runtime.protocol.data import Hop
from runtime.protocol.logs import NO_REQUEST
from runtime.protocol.trace_context import TraceContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a request comes from: `owner` is whose share it takes, and a request with a lower
    `priority` goes before it. Requests with another `prefix_salt` share no pages with it.
    `asked_as` is the id that it came with, for the log, and `context` its place in the traces of
    others."""

    owner: str = ""
    prefix_salt: bytes = b""
    priority: int = 0
    asked_as: str = NO_REQUEST
    context: TraceContext | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """From the queue along a pipeline; seconds of the coordinator's clock. `nodes` in order;
    `tokens_before`: how many tokens had come when it was routed."""

    queued_s: float
    routed_s: float
    nodes: tuple[str, ...]
    tokens_before: int = 0


class RequestLife:
    """Owns the times and counts of one request, in seconds of the coordinator's clock.

    `pipeline` is None until the request was routed, and kept when it ended; `attempts` are the ways
    it went. It waits for a way since `queued_at`, and last progressed at `progressed_at`.
    `token_times`: when its tokens came, but for `unseen_tokens`. `prompt_tokens` None: not known.
    `outcome` is stop, length, cancelled or the code of an error.
    """

    def __init__(
        self, *, arrived_at: float, origin: Origin, prompt_tokens: int | None = None
    ) -> None:
        self.origin = origin
        self.arrived_at = self.progressed_at = self.queued_at = arrived_at
        self.prompt_tokens = prompt_tokens
        self.pipeline: Pipeline | None = None
        self.attempts: list[Attempt] = []
        self.token_times = array("d")
        self.unseen_tokens = 0
        self.outcome = "cancelled"

    @property
    def hops(self) -> tuple[Hop, ...]:
        """The stages of its pipeline; none while it waits."""
        stages = self.pipeline.stages if self.pipeline else ()
        return tuple(Hop(node=one.node, first=one.first, end=one.end) for one in stages)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of its pipeline; none while it waits."""
        return self.attempts[-1].nodes if self.pipeline else ()

    @property
    def output_tokens(self) -> int:
        return len(self.token_times) + self.unseen_tokens

    @property
    def queue_s(self) -> float:
        """From the arrival until it was routed last."""
        return self.attempts[-1].routed_s - self.arrived_at if self.attempts else 0.0

    @property
    def ttft_s(self) -> float | None:
        return self.token_times[0] - self.arrived_at if self.token_times else None

    def follow(self, pipeline: Pipeline, *, now: float) -> None:
        """It was routed."""
        self.pipeline = pipeline
        self.progressed_at = now
        nodes = tuple(stage.node for stage in pipeline.stages)
        self.attempts.append(
            Attempt(
                queued_s=self.queued_at,
                routed_s=now,
                nodes=nodes,
                tokens_before=len(self.token_times),
            )
        )

    def note_token(self, *, now: float) -> None:
        """One more token came."""
        self.token_times.append(now)
        self.progressed_at = now
