"""Runs steps with a real model: forward, then a token for each request that is sampled.

Legend: T rows of the step, R of them sampled from, D hidden, V vocabulary.
"""

import logging
import math
from collections.abc import Sequence as Items

import torch
from torch import Tensor

from runtime.engine.backend import Drawn, ModelShape, StepResult
from runtime.engine.grammar import Grammar, GrammarError, Grammars
from runtime.engine.host_memory import HostMemory
from runtime.engine.model_runner import ModelRunner
from runtime.engine.pages import PageBooks
from runtime.engine.sampler import TokenHistory, adjusted, logprobs_of, sample
from runtime.engine.sequence import RequestKey, Work
from runtime.protocol.data import DType, Reason
from runtime.protocol.routes import Sampling

logger = logging.getLogger(__name__)

WIRE_DTYPES = {
    torch.float32: DType.FLOAT32,
    torch.float16: DType.FLOAT16,
    torch.bfloat16: DType.BFLOAT16,
}


class ModelBackend:
    """Implements `Backend` with the layers that `runner` runs."""

    def __init__(self, runner: ModelRunner, *, grammars: Grammars) -> None:
        self._runner = runner
        self._first, self._end = min(runner.decoder.held), max(runner.decoder.held) + 1
        self._grammars = grammars
        self._histories: dict[RequestKey, TokenHistory] = {}
        self._followed: dict[RequestKey, Grammar] = {}

    @property
    def shape(self) -> ModelShape:
        config = self._runner.decoder.config
        return ModelShape(
            first=self._first,
            end=self._end,
            num_layers=config.num_layers,
            hidden_size=config.hidden_size,
            vocab_size=config.vocab_size,
            dtype=WIRE_DTYPES[config.dtype],
        )

    @property
    def books(self) -> PageBooks:
        return self._runner.cache.books

    @property
    def weights_bytes(self) -> int:
        return self._runner.weights_bytes

    @property
    def kv_bytes(self) -> int:
        return self._runner.kv_bytes

    @property
    def emulated(self) -> bool:
        return False

    def run(self, step: Items[Work]) -> StepResult:
        return self.behind_layers(step, self._runner.forward(step))

    def behind_layers(self, step: Items[Work], hidden_TD: Tensor) -> StepResult:
        """What becomes of the rows of a step that has run through its layers."""
        chosen, ends = [], []
        end = 0
        for index, work in enumerate(step):
            end += work.chunk.n_tokens
            if work.sequence.is_last_stage and work.chunk.is_sampled:
                chosen.append(index)
                ends.append(end - 1)
        rows = _TensorRows(hidden_TD, self._runner.host)
        if not chosen:
            return StepResult(rows=rows)
        logits_RV = self._runner.logits(hidden_TD[ends])
        largest_R, best_R = (found_R.tolist() for found_R in logits_RV.max(-1))
        drawn, failed = {}, {}
        for index, logits_V, best, largest in zip(
            chosen, logits_RV, best_R, largest_R, strict=True
        ):
            request = step[index].sequence.key.request
            if not math.isfinite(largest):  # NaN anywhere is the largest; some may be -inf
                logger.error("request %d: logits are no numbers", request)
                failed[index] = Reason.NOT_A_NUMBER
                continue
            try:
                drawn[index] = self._draw(step[index], logits_V, best=best)
            except GrammarError as error:
                logger.error("request %d: %s", request, error)
                failed[index] = Reason.GRAMMAR_FAILED
        return StepResult(rows=rows, drawn=drawn, failed=failed)

    def forget(self, key: RequestKey) -> None:
        self._histories.pop(key, None)
        self._followed.pop(key, None)

    def _draw(self, work: Work, logits_V: Tensor, *, best: int) -> Drawn:
        """`best`: where `logits_V` is largest. Raises GrammarError."""
        sampling = work.sequence.route.sampling
        history = self._history(work.sequence.key, sampling)
        grammar = self._grammar(work.sequence.key, sampling)
        if sampling.temperature <= 0 and not (history or grammar or sampling.logit_bias):
            token_id = best
        else:
            choices_V = adjusted(logits_V, sampling, history)
            if grammar is not None:
                choices_V = grammar.allowed(choices_V)
            token_id = sample(choices_V, sampling, position=work.chunk.end)
        if history is not None:
            history.add(token_id)
        if grammar is not None:
            grammar.accept(token_id)
        return Drawn(
            token_id=token_id,
            logprobs=None
            if sampling.logprobs is None
            else logprobs_of(logits_V, token_id, count=sampling.logprobs),
            is_final=grammar is not None and grammar.is_complete,
        )

    def _history(self, key: RequestKey, sampling: Sampling) -> TokenHistory | None:
        if not sampling.has_penalties:
            return None
        if key not in self._histories:
            self._histories[key] = TokenHistory(sampling)
        return self._histories[key]

    def _grammar(self, key: RequestKey, sampling: Sampling) -> Grammar | None:
        if not sampling.grammar:
            return None
        if key not in self._followed:
            grammar = self._grammars.follow(sampling.grammar)
            for token_id in sampling.emitted_ids:
                grammar.accept(token_id)
            self._followed[key] = grammar
        return self._followed[key]


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
