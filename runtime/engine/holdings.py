"""The layers and pages of a runner, changed while it serves."""

import gc
from collections.abc import Callable, Collection, Iterable, Iterator
from collections.abc import Sequence as Items
from contextlib import contextmanager

import torch

from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.checkpoints.errors import CheckpointError
from runtime.engine.backend import CannotRun
from runtime.engine.generation import NoRoom, Progress
from runtime.engine.limits import EngineLimits
from runtime.engine.memory import BudgetTooSmall, kv_pages, pages_in_free_memory
from runtime.engine.pages import BlockTable
from runtime.engine.step_runner import StepRunner
from runtime.free_memory import give_back_free_memory
from runtime.models.free_memory import MemoryTooSmall, free_bytes

# Reads layers beside the steps; what it returns adds them to the runner, between two.
Read = Callable[[Items[range], Progress], Callable[[], None]]


class RunnerHoldings:
    """Adds and drops layers and pages of a runner; `Hosting` calls it between steps.

    Implements `Holdings` for `runner`. `sizes` are those it computes.
    """

    def __init__(
        self,
        runner: StepRunner,
        sizes: DecoderSizes,
        *,
        read: Read,
        limits: EngineLimits,
        memory_budget_bytes: int,
    ) -> None:
        self._runner = runner
        self._sizes = sizes
        self._read = read
        self._limits = limits
        self._memory_budget_bytes = memory_budget_bytes

    @property
    def held(self) -> Collection[int]:
        """See `Holdings`."""
        return self._runner.held

    def load(self, runs: Items[range], progress: Progress) -> Callable[[], None]:
        """See `Holdings`."""
        with _refusals(runs):
            add = self._read(runs, progress)

        def put_into_place() -> None:
            with _refusals(runs):
                add()

        return put_into_place

    def keep(self, ranges: Items[range]) -> None:
        """See `Holdings`."""
        gone = set(self.held).difference(*ranges)
        if not gone:
            return
        self._runner.forget(gone)
        gc.collect()  # modules refer to each other
        if self._runner.device.type == "cuda":
            torch.cuda.empty_cache()
        else:
            give_back_free_memory()

    def pages_beside(self, ranges: Items[range]) -> int:
        """See `Holdings`. As a stage that is started for these layers would find it, but with
        steps of the size that this one was started with: refusals are followed by a restart."""
        sizes, limits = self._sizes, self._limits
        wanted: set[int] = set().union(*ranges)
        free = free_bytes(self._runner.device) + self._runner.cache.claimed_bytes
        free += sizes.weights_bytes_of(self.held) - sizes.weights_bytes_of(wanted)
        try:
            within_budget = kv_pages(
                sizes, limits, memory_budget_bytes=self._memory_budget_bytes, ranges=ranges
            )
            return min(
                within_budget,
                pages_in_free_memory(sizes, limits, free_bytes=max(0, free), ranges=ranges),
            )
        except BudgetTooSmall as error:
            raise NoRoom(str(error)) from error

    def resize(self, pages: int, tables: Iterable[BlockTable]) -> None:
        """See `Holdings`."""
        self._runner.cache.resize(pages, tables)


@contextmanager
def _refusals(runs: Items[range]) -> Iterator[None]:
    """Raises NoRoom and CannotRun for what engines raise."""
    try:
        yield
    except (MemoryTooSmall, MemoryError, torch.OutOfMemoryError) as error:
        layers = " and ".join(f"[{run.start}, {run.stop})" for run in runs)
        raise NoRoom(f"no room to load layers {layers}: {error}") from error
    except CheckpointError as error:
        raise CannotRun(str(error)) from error
