"""The layers that a measurement times with vLLM's model code, in vLLM's environment."""

from functools import partial

import torch

from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.checkpoints.weight_source import WeightSource
from runtime.engine.backend import CannotRun
from runtime.engine.compute_dtype import compute_dtype
from runtime.engine.limits import EngineLimits
from runtime.engine.step_runner import StepRunner
from runtime.engine.vllm_loading import VllmLayers as OpenedLayers
from runtime.engine.vllm_loading import open_layers, wanted_names
from runtime.profiler.step_times import DEEP
from runtime.protocol.engines import ComputeDtype


class VllmLayers:
    """Implements `MeasuredLayers`. A layer cannot be repeated: the first ones are read."""

    def __init__(self, source: WeightSource, chosen: ComputeDtype) -> None:
        self._source = source
        self._opened: OpenedLayers | None = None
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.stored = source.sizes()
        self._sizes = self.stored.computed_in(
            compute_dtype(chosen, self.stored.dtype_name, self.device)
        )

    @property
    def sizes(self) -> DecoderSizes:
        return self._sizes

    @property
    def deep_bytes(self) -> int:
        """See `MeasuredLayers`."""
        return self._sizes.weights_bytes(0, min(DEEP, self._sizes.num_layers))

    def deep(self, limits: EngineLimits, *, pages: int) -> StepRunner:
        """See `MeasuredLayers`."""
        if self._sizes.num_layers < DEEP:
            raise CannotRun(
                f"the model has {self._sizes.num_layers} layers; vLLM's are measured by {DEEP}: "
                "choose the engine helix for this node, or enter a profile"
            )
        if self._opened is None:
            self._opened = self._open(range(DEEP), limits)
        return self._opened.runner(pages=pages)

    def last(self, limits: EngineLimits, *, pages: int) -> StepRunner:
        """See `MeasuredLayers`."""
        layers = range(self._sizes.num_layers - 1, self._sizes.num_layers)
        return self._open(layers, limits).runner(pages=pages)

    def _open(self, layers: range, limits: EngineLimits) -> OpenedLayers:
        self._source.fetch(
            partial(wanted_names, sizes=self._sizes, layers=layers),
            read_bytes=0,
            progress=lambda _done, _total: None,
        )
        return open_layers(
            self._source.folder,
            self._sizes,
            layers,
            limits=limits,
            progress=lambda _done, _total: None,
        )
