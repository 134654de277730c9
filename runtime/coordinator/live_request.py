"""One request from admission to its last token, and the text that grows from its tokens."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.domain.pipeline import Pipeline
from planner.routers.base import RequestSize
from runtime.coordinator.refusals import RequestFailed
from runtime.coordinator.request_life import Origin, RequestLife
from runtime.coordinator.serving import Serving
from runtime.coordinator.text_stream import AnswerText
from runtime.protocol.data import Sampling
from runtime.protocol.openai_answers import FinishReason
from runtime.protocol.sampled import Logprobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """One token and the text that became certain with it."""

    token_id: int
    text: str
    finish_reason: FinishReason | None
    logprobs: Logprobs | None = None
    stop_string: str | None = None  # that ended the answer


class LiveRequest(RequestLife):
    """Owns what is known of one request; the dispatcher makes and changes it, the answering task
    takes what `news` says has come.

    A new `epoch` makes late frames of an earlier attempt recognisable; `turned_away` of them found
    the pages taken by requests of another coordinator. `progressed_before` is when it had
    progressed as the last attempt began.
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
        super().__init__(arrived_at=arrived_at, origin=origin, prompt_tokens=len(prompt_ids))
        self.id = request_id
        self.serving = serving
        self.prompt_ids = tuple(prompt_ids)
        self.sampling = sampling
        self.size = size
        self.owner, self.priority = origin.owner, origin.priority
        self.epoch = 0
        self.token_ids: list[int] = []
        self.progressed_before = 0.0
        self.turned_away = 0
        self.ended = False
        self._text = text
        self.news = asyncio.Event()
        self._arrived: deque[Delta | RequestFailed] = deque()

    @property
    def next_position(self) -> int:
        """Where the next token stands in the sequence."""
        return len(self.prompt_ids) + len(self.token_ids)

    @property
    def is_complete(self) -> bool:
        """Whether its last token has come."""
        return self.outcome in ("stop", "length")

    def follow(self, pipeline: Pipeline, *, now: float) -> None:
        self.progressed_before = self.progressed_at
        super().follow(pipeline, now=now)

    @property
    def next_serving(self) -> Serving:
        """The plan under which it would restart."""
        return self.serving.followed_by or self.serving

    @property
    def restarted_size(self) -> RequestSize:
        """What it asks room for if it restarts."""
        left = self.sampling.max_tokens - len(self.token_ids)
        return RequestSize(
            prompt_tokens=self.next_position,
            predicted_output_tokens=min(self.size.predicted_output_tokens, left),
        )

    def restart(self, *, now: float) -> None:
        """Its pages are gone: a new epoch goes on from prompt and tokens, once it is routed.

        If its plan is on its way out, that is under the one that follows.
        """
        self.size = self.restarted_size
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
        finish_reason: FinishReason | None,
        logprobs: Logprobs | None = None,
    ) -> bool:
        """Append a sampled token; True when it was the last.

        A stop token has no text. The last token of a schema-bound answer has: it also ends with
        "stop", but it is part of the answer. Stop strings within the first `min_tokens` tokens end
        nothing.
        """
        self.token_ids.append(token_id)
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
