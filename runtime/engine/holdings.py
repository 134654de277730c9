"""What holdings of every engine have in common: the pages that fit beside layers."""

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from collections.abc import Sequence as Items

import torch

from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.engine.generation import NoRoom, Progress
from runtime.engine.limits import EngineLimits
from runtime.engine.memory import BudgetTooSmall, kv_pages, pages_in_free_memory
from runtime.engine.pages import BlockTable
from runtime.engine.step_runner import StepRunner
from runtime.free_memory import give_back_free_memory
from runtime.models.free_memory import free_bytes


class RunnerHoldings(ABC):
    """Changes a runner's pages while it serves; the base of what changes layers, too.

    Implements `Holdings` for `runner`, but for its layers. `sizes` are those it computes.
    """

    def __init__(
        self,
        runner: StepRunner,
        sizes: DecoderSizes,
        *,
        limits: EngineLimits,
        memory_budget_bytes: int,
    ) -> None:
        self._runner = runner
        self._sizes = sizes
        self._limits = limits
        self._memory_budget_bytes = memory_budget_bytes

    @property
    @abstractmethod
    def held(self) -> Collection[int]:
        """See `Holdings`."""

    @abstractmethod
    def load(self, runs: Items[range], progress: Progress) -> Callable[[], None]:
        """See `Holdings`."""

    def keep(self, ranges: Items[range]) -> None:
        """See `Holdings`."""
        before, wanted = set(self.held), set[int]().union(*ranges)
        self._keep(wanted)
        if before <= wanted:
            return
        gc.collect()  # modules refer to each other
        if self._runner.device.type == "cuda":
            torch.cuda.empty_cache()
        else:
            give_back_free_memory()

    @abstractmethod
    def _keep(self, wanted: set[int]) -> None:
        """Forget the layers that are not among `wanted`."""

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
