"""The layers of a checkpoint that a measurement times, by the engine that a stage would have."""

from functools import partial
from typing import Protocol

import torch

from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.checkpoints.weight_source import WeightSource
from runtime.engine.compute_dtype import compute_dtype
from runtime.engine.kv_cache import KvCache
from runtime.engine.limits import EngineLimits
from runtime.engine.model_runner import ModelRunner
from runtime.engine.step_runner import StepRunner
from runtime.models.config import read_config
from runtime.models.decoder import Decoder
from runtime.models.model_config import ModelConfig
from runtime.models.weights import load_decoder, wanted_tensors
from runtime.profiler.step_times import DEEP
from runtime.protocol.engines import ComputeDtype


class MeasuredLayers(Protocol):
    """Opened when asked for: what is fetched and loaded is no more than that needs."""

    @property
    def stored(self) -> DecoderSizes:
        """The model as the checkpoint has it."""

    @property
    def sizes(self) -> DecoderSizes:
        """The model as it is computed."""

    @property
    def device(self) -> torch.device: ...

    @property
    def deep_bytes(self) -> int:
        """Of the weights that `deep` loads."""

    def deep(self, limits: EngineLimits, *, pages: int) -> StepRunner:
        """Runs layers [0, `DEEP`) and [0, `SHALLOW`) with a cache of `pages` pages.

        Raises CheckpointError, CannotRun, and torch.OutOfMemoryError for too many pages.
        """

    def last(self, limits: EngineLimits, *, pages: int) -> StepRunner:
        """Runs the last layer, with the output head. Raises the same."""


class OwnLayers:
    """Implements `MeasuredLayers` with HelixWeb's own engine, which repeats the first layer."""

    def __init__(self, source: WeightSource, chosen: ComputeDtype = ComputeDtype.AUTO) -> None:
        self._source = source
        self._first: Decoder | None = None
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.stored = read_config(source.folder)
        self._config = self.stored.computed_in(
            compute_dtype(chosen, self.stored.dtype_name, self.device)
        )

    @property
    def sizes(self) -> ModelConfig:
        return self._config

    @property
    def deep_bytes(self) -> int:
        """See `MeasuredLayers`."""
        return self._config.weights_bytes(0, 1)

    def deep(self, limits: EngineLimits, *, pages: int) -> StepRunner:
        """See `MeasuredLayers`."""
        if self._first is None:
            self._first = self._layer(0)
        return self._runner(self._first.repeating(DEEP), limits, pages=pages)

    def last(self, limits: EngineLimits, *, pages: int) -> StepRunner:
        """See `MeasuredLayers`."""
        return self._runner(self._layer(self._config.num_layers - 1), limits, pages=pages)

    def _layer(self, layer: int) -> Decoder:
        self._source.fetch(
            partial(wanted_tensors, self._config, first=layer, end=layer + 1),
            read_bytes=0,
            progress=lambda _done, _total: None,
        )
        return load_decoder(
            self._source.folder,
            self._config,
            first=layer,
            end=layer + 1,
            device=self.device,
            progress=lambda _done, _total: None,
        )

    def _runner(self, decoder: Decoder, limits: EngineLimits, *, pages: int) -> ModelRunner:
        cache = KvCache(
            self._config, pages=pages, page_tokens=limits.page_tokens, device=self.device
        )
        return ModelRunner(decoder, cache, max_context_tokens=limits.max_context_tokens)
