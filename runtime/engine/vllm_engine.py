"""Stages that vLLM's model code computes, in a process of vLLM's own environment."""

import logging
import time
from collections.abc import Callable, Collection
from collections.abc import Sequence as Items
from functools import cached_property

from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.checkpoints.weight_source import Progress
from runtime.engine.backend import CannotRun
from runtime.engine.holdings import Read
from runtime.engine.limits import EngineLimits
from runtime.engine.stage_engine import StageEngine, no_progress
from runtime.engine.vllm_graphs import Record, cuda_recorder
from runtime.engine.vllm_loading import (
    UnreadLayers,
    VllmLayers,
    check_layers,
    have_at_hand,
    wanted_names,
)
from runtime.engine.vllm_runner import VllmRunner

logger = logging.getLogger(__name__)


class VllmEngine(StageEngine[DecoderSizes, VllmRunner]):
    """A `StageEngine` of vLLM's model code."""

    @cached_property
    def _record(self) -> Record | None:
        """Makes graphs of decode steps, with one pool of memory; None: they run as they are."""
        has_graphs = self.settings.decode_graphs and self.device.type == "cuda"
        return cuda_recorder(self.device) if has_graphs else None

    def _read_sizes(self) -> DecoderSizes:
        return self.source.sizes()

    def wanted(self, names: Collection[str], layers: range) -> set[str]:
        """See `StageEngine`."""
        return wanted_names(names, self.sizes, layers)

    def read(self, layers: range, limits: EngineLimits, progress: Progress) -> VllmLayers:
        """See `StageEngine`."""
        unread = check_layers(
            self.source.folder, self.sizes, layers, limits=limits, record=self._record
        )
        return unread.read(progress)

    def read_beside(self, runner: VllmRunner, limits: EngineLimits) -> Read | None:
        """See `StageEngine`.

        Making a model sets torch's defaults and vLLM's place in a pipeline for the whole process,
        so the thread that runs steps makes it, between them. What takes long is done before, beside
        the steps: tensors are fetched, and read once so that the system has them in memory.
        """

        def put(runs: Items[range]) -> None:
            """What was made until an error is forgotten by `keep`."""
            for run in runs:
                began_s = time.monotonic()
                runner.add(self.read(run, limits, no_progress).model)
                logger.info(
                    "no step ran for %.1f s: layers [%d, %d) were put into memory",
                    time.monotonic() - began_s,
                    run.start,
                    run.stop,
                )

        def read(runs: Items[range], progress: Progress) -> Callable[[], None]:
            have_at_hand(self.source, self.sizes, runs, progress)
            return lambda: put(runs)

        return read

    def of_rank(self, ranks: int) -> DecoderSizes:
        """See `StageEngine`."""
        return self.sizes.of_rank(ranks)

    def rank(self, ranks: int, layers: range, limits: EngineLimits) -> UnreadLayers:
        """See `StageEngine`. vLLM's layers shard their weights themselves, and add up."""
        sizes = self.of_rank(ranks)
        return check_layers(self.source.folder, sizes, layers, limits=limits, ranks=ranks)

    def first_layers(self, count: int, limits: EngineLimits) -> VllmLayers:
        """See `StageEngine`. A layer cannot be repeated."""
        if self.sizes.num_layers < count:
            raise CannotRun(
                f"the model has {self.sizes.num_layers} layers; vLLM's are measured by {count}: "
                "choose the engine helix for this node, or enter a profile"
            )
        return self.read(range(count), limits, self.fetch(range(count), no_progress))

    def first_bytes(self, count: int) -> int:
        """See `StageEngine`."""
        return self.sizes.weights_bytes(0, min(count, self.sizes.num_layers))
