"""Runs steps with a real model: forward, then a token for each request that is sampled.

Legend: T rows of the step, R of them sampled from, D hidden, V vocabulary.
"""

import logging
from collections.abc import Callable
from collections.abc import Sequence as Items
from concurrent.futures import Future
from functools import partial

import torch
from torch import Tensor

from runtime.engine.backend import Drawn, ModelShape, Rows, StepResult
from runtime.engine.grammar import Grammar, GrammarError, Grammars, GrammarUnavailable
from runtime.engine.ranks import Runner
from runtime.engine.sampled_row import SampledRow, TokenHistory
from runtime.engine.sampling_batch import SamplingBatch
from runtime.engine.sequence import RequestKey, Sequence, Work
from runtime.protocol.data import DType, Reason, Sampling

logger = logging.getLogger(__name__)

WIRE_DTYPES = {
    torch.float32: DType.FLOAT32,
    torch.float16: DType.FLOAT16,
    torch.bfloat16: DType.BFLOAT16,
}


class ModelBackend:
    """The backend of a model: runs layers and samples; the stage calls it.

    Implements `Backend` with the layers that `runner` runs.
    """

    emulated = False

    def __init__(self, runner: Runner, *, grammars: Grammars, engine: str = "") -> None:
        self.engine = engine
        self.kv_manager = runner.cache.kv_manager
        self._runner = runner
        self._first, self._end = min(runner.held), max(runner.held) + 1
        self._grammars = grammars
        self._histories: dict[RequestKey, TokenHistory] = {}
        self._grammar_of: dict[RequestKey, Future[Grammar]] = {}

    @property
    def shape(self) -> ModelShape:
        model = self._runner.shape
        return ModelShape(
            first=self._first,
            end=self._end,
            num_layers=model.num_layers,
            hidden_size=model.hidden_size,
            vocab_size=model.vocab_size,
            dtype=WIRE_DTYPES[model.wire_dtype],
        )

    @property
    def weights_bytes(self) -> int:
        return self._runner.weights_bytes

    @property
    def kv_bytes(self) -> int:
        return self._runner.kv_bytes

    def is_ready(self, sequence: Sequence) -> bool:
        begun = self._begun(sequence)
        return begun is None or begun.done()

    @property
    def runs_beside(self) -> bool:
        return self._runner.host.copies_beside

    def run(self, step: Items[Work]) -> StepResult:
        """Begin a step and wait for it."""
        return self.begin(step)()

    def begin(self, step: Items[Work]) -> Callable[[], StepResult]:
        return self.behind_layers(step, self._runner.forward(step))

    def behind_layers(self, step: Items[Work], hidden_TD: Tensor) -> Callable[[], StepResult]:
        """What becomes of the rows of a step that runs through its layers; called, it waits for
        them."""
        host, sampled, failed = self._runner.host, dict[int, SampledRow](), dict[int, Reason]()
        ends, end = [], 0
        for index, work in enumerate(step):
            end += work.chunk.n_tokens
            if work.sequence.is_last_stage and work.chunk.is_sampled:
                try:
                    sampled[index] = self._sampled(work)
                except GrammarError as error:
                    failed[index] = _grammar_failed(work, error)
                else:
                    ends.append(end - 1)
        left = self._leave(step, hidden_TD)
        picked: Callable[[], list[Drawn | None]] = list
        if sampled:
            logits_RV = self._runner.logits(host.rows_at(hidden_TD, ends))
            picked = SamplingBatch(list(sampled.values())).start(logits_RV, host)

        def result() -> StepResult:
            rows = left(failed)
            drawn = {}
            for (index, row), pick in zip(sampled.items(), picked(), strict=True):
                if pick is None:
                    request = step[index].sequence.key.request
                    logger.error("request %d: its logits leave no token to pick", request)
                    failed[index] = Reason.NOT_A_NUMBER
                    continue
                try:
                    drawn[index] = row.drawn(pick)
                except GrammarError as error:
                    failed[index] = _grammar_failed(step[index], error)
            return StepResult(rows=rows, drawn=drawn, failed=failed)

        return result

    def forget(self, key: RequestKey) -> None:
        self._histories.pop(key, None)
        begun = self._grammar_of.pop(key, None)
        if begun is not None:
            begun.cancel()

    def _leave(self, step: Items[Work], hidden_TD: Tensor) -> Callable[[dict[int, Reason]], Rows]:
        """Has the rows of a step copied for the wire. What it returns waits for them, and adds to
        what it is given the works whose rows cannot go on, by their index: float16 ends at 65504,
        which the rows of some families exceed."""
        shape, host = self._runner.shape, self._runner.host
        leaving_TD = hidden_TD.to(shape.wire_dtype)
        if all(work.sequence.is_last_stage for work in step):
            return lambda _: _HostRows(partial(host.to_host, leaving_TD))
        landing, finite = host.start_to_host(leaving_TD), None
        if torch.float16 in (shape.dtype, shape.wire_dtype):
            finite = host.start_to_host(leaving_TD.isfinite().all(-1))

        def leave(failed: dict[int, Reason]) -> Rows:
            if finite is not None:
                failed.update(self._overflowed(step, finite()))
            return _HostRows(landing)

        return leave

    def _overflowed(self, step: Items[Work], finite_T: Tensor) -> dict[int, Reason]:
        shape, failed = self._runner.shape, dict[int, Reason]()
        counts = [work.chunk.n_tokens for work in step]
        for index, finite_R in enumerate(torch.split(finite_T, counts)):
            if not step[index].sequence.is_last_stage and not finite_R.all():
                logger.error(
                    "request %d: its rows are beyond float16 (computed in %s, sent in %s); start "
                    "the node's agent with --compute-dtype float32, and deploy without float16 "
                    "between stages",
                    step[index].sequence.key.request,
                    WIRE_DTYPES[shape.dtype].name.lower(),
                    WIRE_DTYPES[shape.wire_dtype].name.lower(),
                )
                failed[index] = Reason.NOT_A_NUMBER
        return failed

    def _sampled(self, work: Work) -> SampledRow:
        """How the row behind `work` is sampled. Raises GrammarError."""
        sampling = work.sampling
        grammar = self._grammar(work)
        return SampledRow(
            sampling=sampling,
            position=work.chunk.end,
            history=self._history(work.sequence.key, sampling),
            allowed=None if grammar is None else grammar.allowed(),
            grammar=grammar,
        )

    def _history(self, key: RequestKey, sampling: Sampling) -> TokenHistory | None:
        if not sampling.has_penalties:
            return None
        if key not in self._histories:
            self._histories[key] = TokenHistory(sampling)
        return self._histories[key]

    def _grammar(self, work: Work) -> Grammar | None:
        """Of the request of `work`, which waits for it. Raises GrammarError."""
        begun = self._begun(work.sequence)
        return None if begun is None else begun.result()

    def _begun(self, sequence: Sequence) -> "Future[Grammar] | None":
        """The grammar of a request that is sampled here, compiled or not yet; None: it has none."""
        sampling = sequence.route.sampling
        if not sampling.grammar or not sequence.is_last_stage:
            return None
        begun = self._grammar_of.get(sequence.key)
        if begun is None:
            begun = self._grammars.begin(sampling.grammar, emitted_ids=sampling.emitted_ids)
            self._grammar_of[sequence.key] = begun
        return begun


def _grammar_failed(work: Work, error: GrammarError) -> Reason:
    logger.error("request %d: %s", work.sequence.key.request, error)
    if isinstance(error, GrammarUnavailable):
        return Reason.STAGE_ERROR
    return Reason.GRAMMAR_FAILED


class _HostRows:
    """Implements `Rows`; `landing` waits for them to be on the host."""

    def __init__(self, landing: Callable[[], Tensor]) -> None:
        self._landing = landing

    def gather(self, spans: Items[tuple[int, int]]) -> memoryview:
        """The view keeps the tensor's memory alive until it is sent."""
        landed_TD = self._landing()
        parts = [landed_TD[start:end] for start, end in spans]
        rows_TD = parts[0] if len(parts) == 1 else torch.cat(parts)
        return rows_TD.view(torch.uint8).numpy().data.cast("B")
