"""The layers and pages of a model that one process runs, changed while it serves."""

import itertools
from collections.abc import Callable, Collection, Iterable
from collections.abc import Sequence as Items
from functools import partial

import torch

from runtime.engine.backend import CannotRun
from runtime.engine.generation import NoRoom, Progress, runs_of
from runtime.engine.limits import EngineLimits
from runtime.engine.memory import BudgetTooSmall, kv_pages, pages_in_free_memory
from runtime.engine.model_runner import ModelRunner
from runtime.engine.pages import PageTable
from runtime.models.checkpoint import CheckpointError
from runtime.models.compact_decoder import CompactDecoder
from runtime.models.free_memory import MemoryTooSmall, free_bytes
from runtime.models.joined_decoder import join

# Layers of the stage's checkpoint, read for its device.
Read = Callable[[range, Progress], CompactDecoder]


class ModelHoldings:
    """Implements `Holdings` for `runner`, which so far runs `decoder`."""

    def __init__(
        self,
        runner: ModelRunner,
        *,
        decoder: CompactDecoder,
        read: Read,
        limits: EngineLimits,
        memory_budget_bytes: int,
    ) -> None:
        self._runner = runner
        self._parts: tuple[CompactDecoder, ...] = (decoder,)
        self._read = read
        self._limits = limits
        self._memory_budget_bytes = memory_budget_bytes

    @property
    def held(self) -> Collection[int]:
        return set(itertools.chain.from_iterable(part.held for part in self._parts))

    def pages_beside(self, ranges: Items[range]) -> int:
        """See `Holdings`. As a stage that is started for these layers would find it, but with
        steps of the size that this one was started with: refusals are followed by a restart."""
        config, limits, cache = self._runner.decoder.config, self._limits, self._runner.cache
        wanted: set[int] = set().union(*ranges)
        free = free_bytes(self._runner.decoder.device) + cache.claimed_bytes
        free += config.weights_bytes_of(self.held) - config.weights_bytes_of(wanted)
        try:
            within_budget = kv_pages(
                config, limits, memory_budget_bytes=self._memory_budget_bytes, ranges=ranges
            )
            return min(
                within_budget,
                pages_in_free_memory(config, limits, free_bytes=max(0, free), ranges=ranges),
            )
        except BudgetTooSmall as error:
            raise NoRoom(str(error)) from error

    def resize(self, pages: int, tables: Iterable[PageTable]) -> None:
        """See `Holdings`."""
        self._runner.cache.resize(pages, tables)

    def load(self, runs: Items[range], progress: Progress) -> Callable[[], None]:
        """See `Holdings`."""
        sizes = [self._runner.decoder.config.weights_bytes_of(run) for run in runs]
        parts = [
            self._read_run(run, partial(_tell_part, progress, sum(sizes[:number]), sum(sizes)))
            for number, run in enumerate(runs)
        ]

        def put_into_place() -> None:
            self._parts = (*self._parts, *parts)

        return put_into_place

    def keep(self, ranges: Items[range]) -> None:
        """See `Holdings`."""
        wanted: set[int] = set().union(*ranges)
        joined = join(
            [
                part.part(run.start, run.stop)
                for part in self._parts
                for run in runs_of(wanted.intersection(part.held))
            ]
        )
        self._parts = joined.parts
        self._runner.run_with(joined)
        if self._runner.decoder.device.type == "cuda":
            torch.cuda.empty_cache()

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
