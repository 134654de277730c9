"""Runs the layers of a step with vLLM's model code.

Legend: T rows of the step, R some of them, D hidden, V vocabulary.
"""

from collections.abc import Callable
from collections.abc import Sequence as Items

import torch
from torch import Tensor

from runtime.engine.host_memory import Parcel
from runtime.engine.sequence import Work
from runtime.engine.step_runner import RunLayers, RunnerShape, StepRunner
from runtime.engine.vllm_cache import VllmCache
from runtime.engine.vllm_model import VllmModel


class VllmRunner(StepRunner):
    """The model and the KV cache it writes. `weights_bytes` are those of its layers."""

    def __init__(
        self, model: VllmModel, cache: VllmCache, *, shape: RunnerShape, weights_bytes: int
    ) -> None:
        super().__init__(shape, model.device)
        self._model = model
        self._cache = cache
        self._weights_bytes = weights_bytes

    @property
    def held(self) -> range:
        return self._model.layers

    @property
    def cache(self) -> VllmCache:
        return self._cache

    @property
    def weights_bytes(self) -> int:
        return self._weights_bytes

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
        return self._model.logits(hidden_RD).float()

    def _prepare_step(self, parcel: Parcel) -> Callable[[Tensor], None]:
        clear = self._cache.prepare(parcel)
        return lambda _: clear()

    def _embed(self, token_ids_R: Tensor) -> Tensor:
        return self._model.embed(token_ids_R)

    def _prepare_layers(self, layers: range, works: list[Work], parcel: Parcel) -> RunLayers:
        return self._model.prepare(layers, works, parcel)
