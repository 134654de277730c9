"""Runs the layers of a step with vLLM's model code.

Legend: T rows of the step, R some of them, D hidden, V vocabulary.
"""

import itertools
from collections.abc import Callable, Collection
from collections.abc import Sequence as Items

import torch
from torch import Tensor

from runtime.engine.host_memory import Parcel
from runtime.engine.sequence import Work
from runtime.engine.step_runner import RunLayers, StepRunner
from runtime.engine.vllm_cache import VllmCache
from runtime.engine.vllm_model import VllmModel


class VllmRunner(StepRunner):
    """Runs steps on vLLM's layers; a `ModelBackend` owns one.

    Models side by side, each with some layers, which write one KV cache.
    """

    cache: VllmCache

    @property
    def held(self) -> set[int]:
        return set().union(*(model.held for model in self.cache.models))

    def add(self, model: VllmModel) -> None:
        """Run its layers too, which no other has."""
        for other in self.cache.models:
            model.share_table(other)
        self.cache.add(model)

    def forget(self, layers: Collection[int]) -> None:
        """See `StepRunner`."""
        for model in self.cache.models:
            model.forget(layers)
        for model in [model for model in self.cache.models if not model.held]:
            self.cache.remove(model)

    @torch.inference_mode()
    def forward(self, step: Items[Work]) -> Tensor:
        """See `StepRunner`. Decodes run before prompts: vLLM's MLA splits a batch there."""
        order = sorted(range(len(step)), key=lambda index: step[index].chunk.n_tokens > 1)
        if order == list(range(len(step))):
            return super().forward(step)
        rows_TD = super().forward([step[index] for index in order])
        counts = [step[index].chunk.n_tokens for index in order]
        parts = dict(zip(order, torch.split(rows_TD, counts), strict=True))
        return torch.cat([parts[index] for index in range(len(step))])

    @torch.inference_mode()
    def logits(self, hidden_RD: Tensor) -> Tensor:
        """Logits [R, V], float32, of rows behind the model's last layer."""
        return self._model_with(self.shape.num_layers - 1).logits(hidden_RD).float()

    def _prepare_step(self, parcel: Parcel) -> Callable[[Tensor], None]:
        clear = self.cache.prepare(parcel)
        return lambda _: clear()

    def _embed(self, token_ids_R: Tensor) -> Tensor:
        return self._model_with(0).embed(token_ids_R)

    def _prepare_layers(self, layers: range, works: list[Work], parcel: Parcel) -> RunLayers:
        runs = []
        for model, its_layers in itertools.groupby(layers, key=self._model_with):
            part = [*its_layers]
            runs.append(model.prepare(range(part[0], part[-1] + 1), works, parcel))

        def run(hidden_RD: Tensor, positions_R: Tensor, rows_R: Tensor | None) -> Tensor:
            for run_part in runs:
                hidden_RD = run_part(hidden_RD, positions_R, rows_R)
            return hidden_RD

        return run

    def _model_with(self, layer: int) -> VllmModel:
        return next(model for model in self.cache.models if layer in model.held)
