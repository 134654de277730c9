"""The layers and pages that one process runs with vLLM's model code, changed while it serves.

Making a model sets torch's defaults and vLLM's place in a pipeline for the whole process, so the
thread that runs steps makes it, between them. What takes long is done before, beside the steps:
tensors are fetched, and read once so that the system has them in memory.
"""

import logging
import time
from collections.abc import Callable, Collection
from collections.abc import Sequence as Items

import torch

from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.engine.backend import CannotRun
from runtime.engine.generation import NoRoom, Progress
from runtime.engine.holdings import RunnerHoldings
from runtime.engine.limits import EngineLimits
from runtime.engine.vllm_model import VllmModel
from runtime.engine.vllm_runner import VllmRunner
from runtime.models.checkpoint import CheckpointError
from runtime.models.free_memory import MemoryTooSmall

logger = logging.getLogger(__name__)

# Layers of the stage's checkpoint: has their tensors at hand, then makes the model of a range.
Prepare = Callable[[Items[range], Progress], None]
Make = Callable[[range], VllmModel]


class VllmHoldings(RunnerHoldings):
    """Adds and drops layers of vLLM's models; `Hosting` calls it between steps.

    Implements `Holdings` for `runner`.
    """

    def __init__(
        self,
        runner: VllmRunner,
        sizes: DecoderSizes,
        *,
        prepare: Prepare,
        make: Make,
        limits: EngineLimits,
        memory_budget_bytes: int,
    ) -> None:
        super().__init__(runner, sizes, limits=limits, memory_budget_bytes=memory_budget_bytes)
        self._models = runner
        self._prepare = prepare
        self._make = make

    @property
    def held(self) -> Collection[int]:
        return self._models.held

    def load(self, runs: Items[range], progress: Progress) -> Callable[[], None]:
        """See `Holdings`."""
        try:
            self._prepare(runs, progress)
        except MemoryTooSmall as error:
            raise NoRoom(str(error)) from error
        except CheckpointError as error:
            raise CannotRun(str(error)) from error
        return lambda: self._put_into_place(runs)

    def _put_into_place(self, runs: Items[range]) -> None:
        """Raises NoRoom and CannotRun; what was made until then is forgotten by `keep`."""
        for run in runs:
            began_s = time.monotonic()
            try:
                self._models.add(self._make(run))
            except (MemoryTooSmall, MemoryError, torch.OutOfMemoryError) as error:
                raise NoRoom(f"no room for layers [{run.start}, {run.stop}): {error}") from error
            except CheckpointError as error:
                raise CannotRun(str(error)) from error
            logger.info(
                "no step ran for %.1f s: layers [%d, %d) were put into memory",
                time.monotonic() - began_s,
                run.start,
                run.stop,
            )

    def _keep(self, wanted: set[int]) -> None:
        self._models.forget(self._models.held - wanted)
