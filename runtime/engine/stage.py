"""A stage: receive, batch, run, send. Read `run` first; it is the whole life of a stage.

One thread, no spinning: it blocks on the transport while nothing waits to be run.
"""

import logging
import time
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass, replace

from torch import Tensor

from planner.domain.cluster import COORDINATOR
from runtime.engine.batcher import pick_step
from runtime.engine.decode_cap import DecodeCap
from runtime.engine.intake import Intake, Refusal, StageShape
from runtime.engine.kv_cache import KvCache, NoFreePages
from runtime.engine.memory import EngineLimits
from runtime.engine.model_runner import ModelRunner, Work
from runtime.engine.outgoing import (
    WIRE_DTYPES,
    Outgoing,
    Sampled,
    finish_reason,
    rows_messages,
    sampled_messages,
)
from runtime.engine.sampler import sample
from runtime.engine.sequence import RequestKey
from runtime.models.decoder import Decoder
from runtime.protocol.control import StageStats
from runtime.protocol.data import Entry, Flag, FrameError, Kind, Message, Reason, StageStatus
from runtime.protocol.engine_options import EngineOptions
from runtime.transport.base import SendError, Transport

logger = logging.getLogger(__name__)

REPORT_INTERVAL_S = 1.0
ORPHAN_AFTER_S = 600.0  # far longer than the coordinator waits for a silent request
_IDLE_WAIT_S = 0.2  # how long a stop may go unnoticed


@dataclass(slots=True, kw_only=True)
class _Counters:
    steps: int = 0
    prompt_tokens: int = 0
    decode_tokens: int = 0
    busy_s: float = 0.0


class Stage:
    """Runs the layers of `decoder` for the requests whose rows come in.

    `incarnation` (32 bits) tells the coordinator this process from one before it. `relative_speed`
    below 1 makes a step last 1/relative_speed as long as it did. `on_report` gets the stage's
    counters about once a second. `clock` and `sleep` are in seconds.
    """

    def __init__(
        self,
        *,
        name: str,
        generation: int,
        incarnation: int,
        limits: EngineLimits,
        decoder: Decoder,
        cache: KvCache,
        transport: Transport,
        options: EngineOptions,
        relative_speed: float = 1.0,
        on_report: Callable[[StageStats], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._name = name
        self._generation = generation
        self._incarnation = incarnation
        self._limits = limits
        self._decoder = decoder
        self._cache = cache
        self._runner = ModelRunner(decoder, cache, max_context_tokens=limits.max_context_tokens)
        self._transport = transport
        self._options = options
        self._decode_cap = DecodeCap(options)
        self._relative_speed = relative_speed
        self._on_report = on_report
        self._clock = clock
        self._sleep = sleep
        self._counters = _Counters()
        self._started_s = clock()
        self._next_report_s = self._started_s
        self._reported_pages = -1
        self._coordinator_is_lost = False
        config = decoder.config
        self._intake = Intake(
            StageShape(
                name=name,
                generation=generation,
                first=decoder.first,
                end=decoder.end,
                num_layers=config.num_layers,
                hidden_size=config.hidden_size,
                vocab_size=config.vocab_size,
                dtype=WIRE_DTYPES[config.dtype],
                max_context_tokens=limits.max_context_tokens,
            ),
            forget=lambda sequence: cache.release(sequence.table),
        )

    def run(self, stopped: Callable[[], bool]) -> None:
        """Serve until `stopped()`."""
        while not stopped():
            self._report_when_due()
            for received in self._transport.receive(timeout_s=self._patience_s()):
                self._accept(received.message, sender=received.sender)
            step = self._next_step()
            if step:
                self._run_step(step)

    def stats(self) -> StageStats:
        """Counters since the stage was made."""
        return StageStats(
            kv_pages_total=self._cache.pool.total,
            kv_pages_used=self._cache.pool.used,
            sequences=len(self._intake.sequences),
            steps_total=self._counters.steps,
            prompt_tokens_total=self._counters.prompt_tokens,
            decode_tokens_total=self._counters.decode_tokens,
            busy_s_total=self._counters.busy_s,
            uptime_s=self._clock() - self._started_s,
            weights_bytes=self._decoder.config.weights_bytes(
                self._decoder.first, self._decoder.end
            ),
            kv_bytes=self._cache.nbytes,
            decode_cap=self._decode_cap.limit(resident=self._decoding()),
            micro_batches=self._decode_cap.micro_batches,
        )

    def check_pages(self) -> None:
        """Raises KvCacheCorrupt unless free + used pages are all pages and each is held once."""
        self._cache.check([sequence.table for sequence in self._intake.sequences.values()])

    def _patience_s(self) -> float:
        if self._has_work():
            return 0.0
        return max(0.0, min(_IDLE_WAIT_S, self._next_report_s - self._clock()))

    def _has_work(self) -> bool:
        return any(sequence.pending for sequence in self._intake.sequences.values())

    def _decoding(self) -> int:
        """Requests whose prompt is behind them."""
        return sum(sequence.is_decoding for sequence in self._intake.sequences.values())

    def _next_step(self) -> list[Work]:
        picks = pick_step(
            self._intake.sequences.values(),
            max_batch_tokens=self._limits.max_batch_tokens,
            min_prefill_tokens=self._limits.page_tokens,
            decode_cap=self._decode_cap.limit(resident=self._decoding()),
            options=self._options,
        )
        step = []
        for pick in picks:
            chunk = pick.sequence.take(pick.n_tokens)
            work = Work(sequence=pick.sequence, chunk=chunk)
            try:
                self._cache.reserve(pick.sequence.table, tokens=chunk.end)
            except NoFreePages as error:
                logger.warning("request %d: %s", pick.sequence.key.request, error)
                self._give_up([work], Reason.NO_KV_PAGES)
            else:
                step.append(work)
        return step

    def _run_step(self, step: list[Work]) -> None:
        began_s = self._clock()
        try:
            hidden_TD = self._runner.forward(step)
            sampled = self._sample(step, hidden_TD)
        except Exception:
            logger.exception("a step of %d requests failed", len(step))
            self._give_up(step, Reason.STAGE_ERROR)
            return
        if self._relative_speed < 1:
            self._sleep((self._clock() - began_s) * (1 / self._relative_speed - 1))
        self._count(step, self._clock() - began_s)
        rule = self._options.messages
        self._send(rows_messages(step, hidden_TD, generation=self._generation, rule=rule))
        self._send(sampled_messages(sampled, generation=self._generation, rule=rule))

    def _sample(self, step: list[Work], hidden_TD: Tensor) -> list[Sampled]:
        ends = []
        chosen = []
        end = 0
        for work in step:
            end += work.chunk.n_tokens
            if work.sequence.is_last_stage and work.chunk.is_sampled:
                ends.append(end - 1)
                chosen.append(work)
        if not chosen:
            return []
        sampled = []
        for work, logits_V in zip(chosen, self._runner.logits(hidden_TD[ends]), strict=True):
            if logits_V.isnan().any():
                logger.error("request %d: logits are no numbers", work.sequence.key.request)
                self._give_up([work], Reason.STAGE_ERROR)
                continue
            token_id = sample(logits_V, work.sequence.route.sampling, position=work.chunk.end)
            reason = finish_reason(
                work,
                token_id=token_id,
                max_context_tokens=self._limits.max_context_tokens,
            )
            sampled.append(Sampled(work=work, token_id=token_id, reason=reason))
        return sampled

    def _count(self, step: list[Work], busy_s: float) -> None:
        self._counters.steps += 1
        self._counters.busy_s += busy_s
        now_s = self._clock()
        decodes = 0
        for work in step:
            work.sequence.left_s = now_s
            if work.chunk.position < work.sequence.route.prompt_tokens:
                self._counters.prompt_tokens += work.chunk.n_tokens
            else:
                decodes += work.chunk.n_tokens
        self._counters.decode_tokens += decodes
        if decodes:
            self._decode_cap.observe_step(busy_s)

    def _send(self, messages: list[Outgoing]) -> None:
        for outgoing in messages:
            if outgoing.peer == self._name:
                self._accept(outgoing.message, sender=self._name)
                continue
            try:
                self._transport.send(outgoing.peer, outgoing.message)
            except (SendError, FrameError) as error:
                logger.error("cannot send to %s: %s", outgoing.peer, error)
                self._end_and_refuse(outgoing.message.entries, Reason.STAGE_ERROR)

    def _accept(self, message: Message, *, sender: str) -> None:
        now_s = self._clock()
        self._refuse(self._intake.accept(message, sender=sender, now_s=now_s))
        if message.kind in (Kind.ROWS, Kind.SAMPLED):
            self._observe_returns(message, now_s=now_s)

    def _observe_returns(self, message: Message, *, now_s: float) -> None:
        """How long requests were away whose next token begins its way here."""
        for entry in message.entries:
            key = RequestKey(request=entry.request, epoch=entry.epoch)
            sequence = self._intake.sequences.get(key)
            if sequence is not None and sequence.left_s is not None and sequence.is_decoding:
                self._decode_cap.observe_return(now_s - sequence.left_s)

    def _give_up(self, step: list[Work], reason: Reason) -> None:
        self._end_and_refuse(
            [
                Entry(
                    request=work.sequence.key.request,
                    epoch=work.sequence.key.epoch,
                    position=work.chunk.position,
                    n_tokens=work.chunk.n_tokens,
                    hop=work.sequence.hop,
                )
                for work in step
            ],
            reason,
        )

    def _end_and_refuse(self, entries: Items[Entry], reason: Reason) -> None:
        for entry in entries:
            self._intake.end(RequestKey(request=entry.request, epoch=entry.epoch))
        self._refuse(
            [Refusal(entry=entry, reason=reason, generation=self._generation) for entry in entries]
        )

    def _refuse(self, refusals: Items[Refusal]) -> None:
        for refusal in refusals:
            entry = replace(refusal.entry, reason=refusal.reason, flags=Flag.NONE, route=None)
            self._tell_coordinator(
                Message(kind=Kind.NACK, generation=refusal.generation, entries=(entry,))
            )

    def _report_when_due(self) -> None:
        now_s = self._clock()
        due = now_s >= self._next_report_s
        idle_with_news = self._cache.pool.used != self._reported_pages and not self._has_work()
        if not due and not idle_with_news:
            return
        self._reported_pages = self._cache.pool.used
        self._tell_coordinator(
            Message(
                kind=Kind.STATUS,
                generation=self._generation,
                status=StageStatus(
                    incarnation=self._incarnation,
                    first=self._decoder.first,
                    end=self._decoder.end,
                    page_tokens=self._cache.page_tokens,
                    pages_total=self._cache.pool.total,
                    pages_used=self._cache.pool.used,
                ),
            )
        )
        if due:
            self._next_report_s = now_s + REPORT_INTERVAL_S
            self._intake.end_orphans(silent_since_s=now_s - ORPHAN_AFTER_S)
            if not self._has_work():
                self.check_pages()
            self._on_report(self.stats())

    def _tell_coordinator(self, message: Message) -> None:
        try:
            self._transport.send(COORDINATOR, message)
        except SendError as error:
            if not self._coordinator_is_lost:
                logger.error("the coordinator hears nothing of this stage: %s", error)
            self._coordinator_is_lost = True
        else:
            self._coordinator_is_lost = False
