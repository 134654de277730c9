"""Stages that vLLM's model code computes, in a process of vLLM's own environment."""

import logging
import time
from collections.abc import Callable, Collection
from collections.abc import Sequence as Items

from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.checkpoints.weight_source import Progress, WeightSource
from runtime.engine.backend import CannotRun
from runtime.engine.holdings import Read
from runtime.engine.limits import EngineLimits
from runtime.engine.stage_engine import StageEngine, no_progress
from runtime.engine.vllm_graphs import cuda_recorder
from runtime.engine.vllm_loading import VllmLayers, have_at_hand, open_layers, wanted_names
from runtime.engine.vllm_ranks import VllmShare
from runtime.engine.vllm_runner import VllmRunner
from runtime.protocol.engines import AUTOMATIC, EngineSettings
from runtime.protocol.stage_pipe import StageLaunch

logger = logging.getLogger(__name__)


class VllmEngine(StageEngine[DecoderSizes, VllmRunner]):
    """A `StageEngine` of vLLM's model code."""

    def __init__(self, source: WeightSource, settings: EngineSettings = AUTOMATIC) -> None:
        """Raises CheckpointError."""
        super().__init__(source, settings)
        has_graphs = settings.decode_graphs and self.device.type == "cuda"
        self._record = cuda_recorder(self.device) if has_graphs else None

    def _read_sizes(self) -> DecoderSizes:
        return self.source.sizes()

    def wanted(self, names: Collection[str], layers: range) -> set[str]:
        """See `StageEngine`."""
        return wanted_names(names, self.sizes, layers)

    def read(self, layers: range, limits: EngineLimits, progress: Progress) -> VllmLayers:
        """See `StageEngine`."""
        return open_layers(
            self.source.folder,
            self.sizes,
            layers,
            limits=limits,
            progress=progress,
            record=self._record,
        )

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

    def share(self, launch: StageLaunch, limits: EngineLimits, device_type: str) -> VllmShare:
        """See `StageEngine`."""
        assignment = launch.assignment
        return VllmShare(
            checkpoint=self.source.folder,
            sizes=self.of_rank(assignment.tensor_parallel),
            layers=range(assignment.first, assignment.end),
            limits=limits,
            wire_dtype=self.wire_dtype(launch),
            threads=launch.threads,
            device_type=device_type,
        )

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
