"""What a stage measures of its steps, and what follows from it for the next one."""

import math
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items

from runtime.engine.decode_cap import DecodeCap
from runtime.engine.link_cuts import LinkCuts
from runtime.engine.running_requests import RunningRequests
from runtime.engine.sequence import RequestKey, Sequence, Work
from runtime.engine.shared_cores import SharedCores
from runtime.protocol.data import Kind, Message
from runtime.protocol.engine_options import EngineOptions, PromptRule, PromptStepRule

# A request that has been away for longer than that many times the usual is not waited for.
_OVERDUE = 2.0


class StepPace:
    """Owns what a stage measures of its steps; the stage's loop calls it.

    Decides how many decodes and prompt rows the next step takes, and how long it waits for more.
    """

    def __init__(
        self,
        options: EngineOptions,
        *,
        running_requests: RunningRequests,
        link_cuts: LinkCuts,
        shared_cores: SharedCores | None,
        most_decodes: int,
        clock: Callable[[], float],
    ) -> None:
        """`shared_cores`: None where the deployment's stages share none."""
        self.decode_cap = DecodeCap(options, steps_at_once=self._steps_at_once)
        self.shared_cores = shared_cores
        self._options = options
        self._running_requests = running_requests
        self._link_cuts = link_cuts
        self._most_decodes = most_decodes
        self._clock = clock

    def share_cores(self, shared_cores: SharedCores | None) -> None:
        """As at the start, with other peers; what was found out stays if there is still cause."""
        if shared_cores is None or self.shared_cores is None:
            self.shared_cores = shared_cores

    def most_decodes(self) -> int | None:
        """Of the next step; None: all."""
        return self.decode_cap.limit(resident=self._running_requests.decoding)

    def first_rows(self) -> int | None:
        """Most tokens of the next step of prompts that begin here; None: all there is room for."""
        options = self._options
        if options.prompt_steps is PromptStepRule.BY_ROOM or options.prompts is PromptRule.WHOLE:
            return None
        return self._link_cuts.first_rows(self._running_requests.waiting.values())

    def gathering_s(self) -> float:
        """How long the next step waits for decodes to join it; 0 where stages share no cores."""
        away_s = self.decode_cap.away_s
        if self.shared_cores is None or away_s is None or not self.decode_cap.is_short_of_cores:
            return 0.0
        return gathering_s(
            self._running_requests.by_key.values(),
            steps_at_once=self.shared_cores.steps_at_once,
            most_decodes=self._most_decodes,
            away_s=away_s,
            now_s=self._clock(),
        )

    def ran(self, step: Items[Work], *, began_s: float, ended_s: float) -> None:
        """A step ran."""
        self._link_cuts.observe(step, step_s=ended_s - began_s)
        for work in step:
            work.sequence.left_s = ended_s
            work.sequence.spans.ran(
                began_s=began_s,
                ended_s=ended_s,
                n_tokens=work.chunk.n_tokens,
                is_prompt=work.is_prompt,
            )
        if not all(work.is_prompt for work in step):
            self.decode_cap.observe_step(ended_s - began_s)
            self._look_at_cores(now_s=ended_s)

    def came(self, message: Message, *, now_s: float) -> None:
        """A message was accepted: how long requests were away whose next token begins its way."""
        if self.shared_cores is not None and not self._running_requests.by_key:
            self.shared_cores.pause()
        if message.kind not in (Kind.ROWS, Kind.SAMPLED):
            return
        for entry in message.entries:
            key = RequestKey(request=entry.request, epoch=entry.epoch)
            sequence = self._running_requests.by_key.get(key)
            if sequence is not None and sequence.left_s is not None and sequence.is_decoding:
                self.decode_cap.observe_return(now_s - sequence.left_s)

    def _steps_at_once(self) -> float:
        return math.inf if self.shared_cores is None else self.shared_cores.steps_at_once

    def _look_at_cores(self, *, now_s: float) -> None:
        under_way = self.decode_cap.micro_batches
        if self.shared_cores is not None and under_way is not None:
            self.shared_cores.look(now_s=now_s, micro_batches=under_way)


def gathering_s(
    sequences: Iterable[Sequence],
    *,
    steps_at_once: float,
    most_decodes: int,
    away_s: float,
    now_s: float,
) -> float:
    """Seconds that the next step waits for decodes to join it, unless more come; 0: begin now.

    Only on a first stage: later ones get the batch as it was formed, one message per step.

    A step waits until its share of the decoding requests is here, all of them for `steps_at_once`
    1 and at most `most_decodes`, but no longer than `away_s`, the time requests are usually away,
    from when the first one came; and for none that should have been back. A prompt, or rows of a
    request that entered elsewhere, wait for nothing.
    """
    here = 0
    first_came_s = now_s
    latest_back_s = now_s
    away = 0
    for sequence in sequences:
        if sequence.pending:
            if sequence.is_prefilling or not sequence.is_first_stage:
                return 0.0
            here += 1
            first_came_s = min(first_came_s, sequence.heard_s)
        elif sequence.is_awaited and sequence.left_s is not None:
            back_s = sequence.left_s + _OVERDUE * away_s
            if back_s > now_s:
                away += 1
                latest_back_s = max(latest_back_s, back_s)
    if not here or here >= min(most_decodes, math.ceil((here + away) / steps_at_once)):
        return 0.0
    return max(0.0, min(first_came_s + away_s, latest_back_s) - now_s)
