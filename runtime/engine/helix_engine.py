"""Stages that our own decoders compute, or `transformers` by the bridge."""

from collections.abc import Callable, Collection
from collections.abc import Sequence as Items
from dataclasses import dataclass
from functools import partial

import torch

from runtime.checkpoints.weight_source import Progress, WeightSource
from runtime.engine.helix_ranks import HelixShare
from runtime.engine.holdings import Read
from runtime.engine.kv_cache import KvCache
from runtime.engine.limits import EngineLimits
from runtime.engine.memory import pages_in_free_memory
from runtime.engine.model_runner import ModelRunner
from runtime.engine.stage_engine import StageEngine, no_progress
from runtime.models.checkpoint import CheckpointError
from runtime.models.config import CompactConfig, read_config
from runtime.models.decoder import Decoder
from runtime.models.free_memory import free_bytes
from runtime.models.linear import cpu_products
from runtime.models.model_config import ModelConfig
from runtime.models.sharding import Shard, shard_config
from runtime.models.weights import load_decoder, wanted_tensors
from runtime.protocol.engines import AUTOMATIC, EngineSettings
from runtime.protocol.stage_pipe import StageLaunch


@dataclass(frozen=True, slots=True, kw_only=True)
class HelixLayers:
    """Implements `ReadLayers`."""

    decoder: Decoder
    limits: EngineLimits

    @property
    def engine(self) -> str:
        return f"helix on {self.decoder.device} in {self.decoder.config.dtype_name}"

    def pages(self, limits: EngineLimits, *, planned: int, budget_bytes: int) -> int:
        """See `ReadLayers`."""
        decoder = self.decoder
        free = free_bytes(decoder.device)
        ranges = [range(min(decoder.held), max(decoder.held) + 1)]
        in_free = pages_in_free_memory(decoder.config, limits, free_bytes=free, ranges=ranges)
        return min(planned, in_free)

    def runner(
        self, *, pages: int, most_pages: int = 0, wire_dtype: torch.dtype | None = None
    ) -> ModelRunner:
        """See `ReadLayers`."""
        cache = KvCache(
            self.decoder.config,
            pages=pages,
            page_tokens=self.limits.page_tokens,
            device=self.decoder.device,
            most_pages=most_pages,
        )
        return ModelRunner(
            self.decoder,
            cache,
            max_context_tokens=self.limits.max_context_tokens,
            wire_dtype=wire_dtype,
        )


class HelixEngine(StageEngine[ModelConfig, ModelRunner]):
    """A `StageEngine` of our own decoders."""

    def __init__(self, source: WeightSource, settings: EngineSettings = AUTOMATIC) -> None:
        """Raises CheckpointError, and UnknownProducts before anything is read."""
        cpu_products()
        super().__init__(source, settings)

    def _read_sizes(self) -> ModelConfig:
        return read_config(self.source.folder)

    def wanted(self, names: Collection[str], layers: range) -> set[str]:
        """See `StageEngine`."""
        return wanted_tensors(self.sizes, names, first=layers.start, end=layers.stop)

    def read(self, layers: range, limits: EngineLimits, progress: Progress) -> HelixLayers:
        """See `StageEngine`."""
        return HelixLayers(decoder=self._decoder(layers, progress), limits=limits)

    def read_beside(self, runner: ModelRunner, limits: EngineLimits) -> Read | None:
        """See `StageEngine`. The layers are read beside the steps."""
        # to a bridged family none are added: making its model sets torch's defaults for all threads
        if not isinstance(self.sizes, CompactConfig):
            return None

        def read(runs: Items[range], progress: Progress) -> Callable[[], None]:
            parts, done_bytes = list[Decoder](), 0
            all_bytes = sum(self.sizes.weights_bytes_of(run) for run in runs)
            for run in runs:
                part_of = partial(_tell_part, progress, done_bytes, all_bytes)
                parts.append(self._decoder(run, self.fetch(run, part_of)))
                done_bytes += self.sizes.weights_bytes_of(run)
            return lambda: runner.add(parts)

        return read

    def of_rank(self, ranks: int) -> CompactConfig:
        """See `StageEngine`."""
        if not isinstance(self.sizes, CompactConfig):
            raise CheckpointError(
                f"{self.source.folder} is of a family that only the bridge runs, which cannot "
                f"share a layer among {ranks} ranks; deploy it without tensor parallelism"
            )
        return shard_config(self.sizes, Shard(rank=0, ranks=ranks))

    def share(self, launch: StageLaunch, limits: EngineLimits, device_type: str) -> HelixShare:
        """See `StageEngine`."""
        return HelixShare(
            checkpoint=self.source.folder,
            first=launch.assignment.first,
            end=launch.assignment.end,
            page_tokens=limits.page_tokens,
            max_context_tokens=limits.max_context_tokens,
            threads=launch.threads,
            device_type=device_type,
            dtype_name=self.sizes.dtype_name,
            wire_dtype=self.wire_dtype(launch),
        )

    def first_layers(self, count: int, limits: EngineLimits) -> HelixLayers:
        """See `StageEngine`. One layer stands for all, which are alike."""
        first = self._decoder(range(1), self.fetch(range(1), no_progress))
        return HelixLayers(decoder=first.repeating(count), limits=limits)

    def first_bytes(self, count: int) -> int:
        """See `StageEngine`."""
        return self.sizes.weights_bytes(0, 1)

    def _decoder(self, layers: range, progress: Progress) -> Decoder:
        return load_decoder(
            self.source.folder,
            self.sizes,
            first=layers.start,
            end=layers.stop,
            device=self.device,
            progress=progress,
        )


def _tell_part(
    progress: Progress, before_bytes: int, all_bytes: int, done_bytes: int, _: int
) -> None:
    """The progress of one run of layers as that of all."""
    progress(before_bytes + done_bytes, all_bytes)
