"""One request from admission to its last token, and the text that grows from its tokens."""

import asyncio
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.domain.pipeline import Pipeline
from planner.routers.base import RequestSize
from runtime.coordinator.serving import Serving
from runtime.coordinator.span_assembly import Attempt
from runtime.coordinator.text_stream import AnswerText
from runtime.protocol.logs import NO_REQUEST
from runtime.protocol.openai_answers import FinishReason
from runtime.protocol.routes import Sampling
from runtime.protocol.sampled import Logprobs
from runtime.protocol.trace_context import TraceContext


class RequestFailed(Exception):
    """The request cannot go on; the message says why and what the client may do."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """One token and the text that became certain with it."""

    token_id: int
    text: str
    finish_reason: FinishReason | None
    logprobs: Logprobs | None = None
    stop_string: str | None = None  # that ended the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a request comes from: `owner` is whose share it takes, and who has a lower `priority`
    goes before it. Requests with another `prefix_salt` share no pages with it. `asked_as` is the id
    that it came with, for the log, and `context` its place in the traces of others."""

    owner: str = ""
    prefix_salt: bytes = b""
    priority: int = 0
    asked_as: str = NO_REQUEST
    context: TraceContext | None = None


class LiveRequest:
    """Owns what is known of one request; the dispatcher makes and changes it, the answering task
    takes what `news` says has come.

    `pipeline` is None until the request was routed, and kept when it ended. A new `epoch` makes
    late frames of an earlier attempt recognisable; `turned_away` of them found the pages taken by
    requests of another coordinator. It waits for a pipeline since `queued_at`; `attempts` are the
    ways it went, `tokens_before` its tokens when the last began, `progressed_before` when it had
    progressed by then, and `token_times` when they came. `outcome` is what a trace says of its end.
    """

    def __init__(
        self,
        request_id: int,
        *,
        serving: Serving,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        size: RequestSize,
        text: AnswerText,
        arrived_at: float,
        origin: Origin,
    ) -> None:
        self.id = request_id
        self.serving = serving
        self.prompt_ids = tuple(prompt_ids)
        self.sampling = sampling
        self.size = size
        self.origin = origin
        self.owner, self.priority = origin.owner, origin.priority
        self.arrived_at = self.progressed_at = self.queued_at = arrived_at
        self.epoch = 0
        self.pipeline: Pipeline | None = None
        self.queue_s = 0.0
        self.first_token_at: float | None = None
        self.token_ids: list[int] = []
        self.token_times = array("d")
        self.attempts: list[Attempt] = []
        self.tokens_before = 0
        self.progressed_before = 0.0
        self.turned_away = 0
        self.outcome = "cancelled"
        self.ended = False
        self._text = text
        self.news = asyncio.Event()
        self._arrived: deque[Delta | RequestFailed] = deque()

    @property
    def next_position(self) -> int:
        """Where the next token stands in the sequence."""
        return len(self.prompt_ids) + len(self.token_ids)

    @property
    def ttft_s(self) -> float | None:
        return None if self.first_token_at is None else self.first_token_at - self.arrived_at

    @property
    def is_complete(self) -> bool:
        """Whether its last token has come."""
        return self.outcome in ("stop", "length")

    def follow(self, pipeline: Pipeline, *, now: float) -> None:
        """It was routed."""
        self.pipeline = pipeline
        self.progressed_before, self.progressed_at = self.progressed_at, now
        self.queue_s = now - self.arrived_at
        self.tokens_before = len(self.token_ids)
        self.attempts.append(
            Attempt(
                queued_s=self.queued_at,
                routed_s=now,
                nodes=tuple(stage.node for stage in pipeline.stages),
            )
        )

    @property
    def next_serving(self) -> Serving:
        """The plan under which it would begin anew."""
        return self.serving.followed_by or self.serving

    @property
    def size_anew(self) -> RequestSize:
        """What it asks room for if it begins anew."""
        left = self.sampling.max_tokens - len(self.token_ids)
        return RequestSize(
            prompt_tokens=self.next_position,
            predicted_output_tokens=min(self.size.predicted_output_tokens, left),
        )

    def begin_anew(self, *, now: float) -> None:
        """Its pages are gone: a new epoch goes on from prompt and tokens, once it is routed.

        If its plan is on its way out, that is under the one that follows.
        """
        self.size = self.size_anew
        self.serving = self.next_serving
        self.pipeline = None
        self.queued_at = now
        self.epoch += 1

    def turn_away(self) -> None:
        """There was no room where it was sent: that was no progress."""
        self.progressed_at = self.progressed_before
        self.turned_away += 1

    def predict_least(self) -> None:
        """Ask for room for one more token only; its books grow with the tokens that come."""
        self.size = replace(self.size, predicted_output_tokens=1)

    def accept(
        self,
        token_id: int,
        *,
        now: float,
        finish_reason: FinishReason | None,
        logprobs: Logprobs | None = None,
    ) -> bool:
        """Append a sampled token; True when it was the last.

        A stop token has no text. The last token of a schema-bound answer has: it also ends with
        "stop", but it is part of the answer. Stop strings within the first `min_tokens` tokens end
        nothing.
        """
        self.token_ids.append(token_id)
        self.token_times.append(now)
        is_stop = finish_reason == "stop" and token_id in self.sampling.stop_token_ids
        text = self._text.push(
            None if is_stop else token_id,
            is_last=finish_reason is not None,
            may_stop=len(self.token_ids) > self.sampling.min_tokens,
        )
        matched = self._text.matched
        if matched is not None:
            finish_reason = "stop"
        self._give(
            Delta(
                token_id=token_id,
                text=text,
                finish_reason=finish_reason,
                logprobs=logprobs,
                stop_string=matched,
            )
        )
        self.outcome = finish_reason or self.outcome
        return finish_reason is not None

    def fail(self, message: str, *, code: str) -> None:
        self.outcome = code
        self._give(RequestFailed(message, code=code))

    def take(self) -> list[Delta]:
        """The tokens that came since; raises RequestFailed behind the last of them."""
        taken: list[Delta] = []
        while self._arrived:
            one = self._arrived[0]
            if isinstance(one, RequestFailed):
                if taken:
                    break
                raise one
            taken.append(one)
            self._arrived.popleft()
        return taken

    def _give(self, one: Delta | RequestFailed) -> None:
        self._arrived.append(one)
        self.news.set()
