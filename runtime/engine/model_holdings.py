"""The layers and pages of a model that one process runs, changed while it serves."""

from collections.abc import Callable, Collection
from collections.abc import Sequence as Items
from functools import partial

import torch

from runtime.engine.backend import CannotRun
from runtime.engine.generation import NoRoom, Progress
from runtime.engine.holdings import RunnerHoldings
from runtime.engine.limits import EngineLimits
from runtime.engine.model_runner import ModelRunner
from runtime.models.checkpoint import CheckpointError
from runtime.models.compact_decoder import CompactDecoder
from runtime.models.free_memory import MemoryTooSmall

# Layers of the stage's checkpoint, read for its device.
Read = Callable[[range, Progress], CompactDecoder]


class ModelHoldings(RunnerHoldings):
    """Adds and drops layers of our own decoders; `Hosting` calls it between steps.

    Implements `Holdings` for `runner`, which so far runs `decoder`.
    """

    def __init__(
        self,
        runner: ModelRunner,
        *,
        decoder: CompactDecoder,
        read: Read,
        limits: EngineLimits,
        memory_budget_bytes: int,
    ) -> None:
        super().__init__(
            runner, decoder.config, limits=limits, memory_budget_bytes=memory_budget_bytes
        )
        self._own = runner
        self._decoder = decoder  # what is loaded, of which `runner` may run less
        self._read = read

    @property
    def held(self) -> Collection[int]:
        return self._decoder.held

    def load(self, runs: Items[range], progress: Progress) -> Callable[[], None]:
        """See `Holdings`."""
        sizes = [self._sizes.weights_bytes_of(run) for run in runs]
        parts = [
            self._read_run(run, partial(_tell_part, progress, sum(sizes[:number]), sum(sizes)))
            for number, run in enumerate(runs)
        ]

        def put_into_place() -> None:
            for part in parts:
                self._decoder = self._decoder.joined(part)

        return put_into_place

    def _keep(self, wanted: set[int]) -> None:
        self._decoder = self._decoder.only(wanted)
        self._own.run_with(self._decoder)

    def _read_run(self, run: range, progress: Progress) -> CompactDecoder:
        try:
            return self._read(run, progress)
        except (MemoryTooSmall, MemoryError, torch.OutOfMemoryError) as error:
            raise NoRoom(f"no room to load layers [{run.start}, {run.stop}): {error}") from error
        except CheckpointError as error:
            raise CannotRun(str(error)) from error


def _tell_part(
    progress: Progress, before_bytes: int, all_bytes: int, done_bytes: int, _: int
) -> None:
    """The progress of one run of layers as that of all."""
    progress(before_bytes + done_bytes, all_bytes)
