"""Runs steps with a real model: forward, then a token for each request that is sampled.

Legend: T rows of the step, R of them sampled from, D hidden, V vocabulary.
"""

import logging
from collections.abc import Sequence as Items
from concurrent.futures import Future

import torch
from torch import Tensor

from runtime.engine.backend import Drawn, ModelShape, StepResult
from runtime.engine.grammar import Grammar, GrammarError, Grammars, GrammarUnavailable
from runtime.engine.host_memory import HostMemory
from runtime.engine.pages import KvCacheManager
from runtime.engine.sampled_row import SampledRow, TokenHistory
from runtime.engine.sampling_batch import Pick, SamplingBatch
from runtime.engine.sequence import RequestKey, Sequence, Work
from runtime.engine.step_runner import Runner
from runtime.protocol.data import DType, Reason
from runtime.protocol.routes import Sampling

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

    def __init__(self, runner: Runner, *, grammars: Grammars, engine: str = "") -> None:
        self._runner = runner
        self._engine = engine
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
    def kv_manager(self) -> KvCacheManager:
        return self._runner.cache.kv_manager

    @property
    def weights_bytes(self) -> int:
        return self._runner.weights_bytes

    @property
    def kv_bytes(self) -> int:
        return self._runner.kv_bytes

    @property
    def emulated(self) -> bool:
        return False

    @property
    def engine(self) -> str:
        return self._engine

    def is_ready(self, sequence: Sequence) -> bool:
        begun = self._begun(sequence)
        return begun is None or begun.done()

    def run(self, step: Items[Work]) -> StepResult:
        return self.behind_layers(step, self._runner.forward(step))

    def behind_layers(self, step: Items[Work], hidden_TD: Tensor) -> StepResult:
        """What becomes of the rows of a step that has run through its layers."""
        rows: dict[int, SampledRow] = {}
        leaving_TD = hidden_TD.to(self._runner.shape.wire_dtype)
        ends, drawn, failed = [], {}, self._overflowed(step, leaving_TD)
        end = 0
        for index, work in enumerate(step):
            end += work.chunk.n_tokens
            if work.sequence.is_last_stage and work.chunk.is_sampled:
                try:
                    rows[index] = self._sampled_row(work)
                except GrammarError as error:
                    failed[index] = _grammar_failed(work, error)
                else:
                    ends.append(end - 1)
        result_rows = _TensorRows(leaving_TD, self._runner.host)
        if rows:
            logits_RV = self._runner.logits(self._runner.host.rows_at(hidden_TD, ends))
            picks = SamplingBatch([*rows.values()]).sample(logits_RV, self._runner.host)
            for index, pick in zip(rows, picks, strict=True):
                if not pick.is_valid:
                    request = step[index].sequence.key.request
                    logger.error("request %d: its logits leave no token to pick", request)
                    failed[index] = Reason.NOT_A_NUMBER
                    continue
                try:
                    drawn[index] = self._drawn(step[index], pick)
                except GrammarError as error:
                    failed[index] = _grammar_failed(step[index], error)
        return StepResult(rows=result_rows, drawn=drawn, failed=failed)

    def forget(self, key: RequestKey) -> None:
        self._histories.pop(key, None)
        begun = self._grammar_of.pop(key, None)
        if begun is not None:
            begun.cancel()

    def _overflowed(self, step: Items[Work], leaving_TD: Tensor) -> dict[int, Reason]:
        """The works whose rows cannot go on, by their index: float16 ends at 65504, which the rows
        of some families exceed."""
        shape, failed = self._runner.shape, dict[int, Reason]()
        leaves = any(not work.sequence.is_last_stage for work in step)
        if not leaves or torch.float16 not in (shape.dtype, shape.wire_dtype):
            return failed
        counts = [work.chunk.n_tokens for work in step]
        finite_T = leaving_TD.isfinite().all(-1).cpu()
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

    def _sampled_row(self, work: Work) -> SampledRow:
        """How the row behind `work` is sampled. Raises GrammarError."""
        sampling = work.sampling
        grammar = self._grammar(work)
        return SampledRow(
            sampling=sampling,
            position=work.chunk.end,
            history=self._history(work.sequence.key, sampling),
            allowed=None if grammar is None else grammar.allowed(),
        )

    def _drawn(self, work: Work, pick: Pick) -> Drawn:
        """Take note of the token picked for `work`. Raises GrammarError."""
        history = self._history(work.sequence.key, work.sampling)
        grammar = self._grammar(work)
        if history is not None:
            history.add(pick.token_id)
        if grammar is not None:
            grammar.accept(pick.token_id)
        return Drawn(
            token_id=pick.token_id,
            logprobs=pick.logprobs,
            is_final=grammar is not None and grammar.is_complete,
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


class _TensorRows:
    """Implements `Rows`; `hidden_TD` on any device."""

    def __init__(self, hidden_TD: Tensor, host: HostMemory) -> None:
        self._hidden_TD = hidden_TD
        self._host = host

    def gather(self, spans: Items[tuple[int, int]]) -> memoryview:
        """The view keeps the tensor's memory alive until it is sent."""
        hidden_TD = self._hidden_TD
        if list(spans) == [(0, len(hidden_TD))]:
            rows_TD = hidden_TD
        else:
            rows_TD = torch.cat([hidden_TD[start:end] for start, end in spans])
        return self._host.to_host(rows_TD).view(torch.uint8).numpy().data.cast("B")
