"""Stages that our own decoders compute, or `transformers` by the bridge."""

from collections.abc import Callable, Collection
from collections.abc import Sequence as Items
from dataclasses import dataclass
from functools import partial

import torch
from torch import distributed

from runtime.checkpoints.weight_source import Progress
from runtime.engine.holdings import Read
from runtime.engine.kv_cache import KvCache
from runtime.engine.limits import EngineLimits
from runtime.engine.memory import pages_in_free_memory
from runtime.engine.model_runner import ModelRunner
from runtime.engine.stage_engine import RankPlace, StageEngine, no_progress
from runtime.models.config import CompactConfig, read_config
from runtime.models.decoder import Decoder
from runtime.models.free_memory import free_bytes
from runtime.models.linear import cpu_products
from runtime.models.model_config import ModelConfig
from runtime.models.ranks import ALONE, Ranks
from runtime.models.sharding import Shard, shard_config
from runtime.models.weights import load_decoder, require_shared, wanted_tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class HelixLayers:
    """Implements `ReadLayers`."""

    decoder: Decoder
    limits: EngineLimits

    @property
    def engine(self) -> str:
        return f"helix on {self.decoder.device.type} in {self.decoder.config.dtype_name}"

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

    def _read_sizes(self) -> ModelConfig:
        """See `StageEngine`. Raises UnknownProducts before anything is read, too."""
        cpu_products()
        return read_config(self.source.folder, self.source.entries)

    def wanted(self, names: Collection[str], layers: range) -> set[str]:
        """See `StageEngine`."""
        return wanted_tensors(self.sizes, names, first=layers.start, end=layers.stop)

    def read(self, layers: range, limits: EngineLimits, progress: Progress) -> HelixLayers:
        """See `StageEngine`."""
        return HelixLayers(decoder=self.decoder(layers, progress), limits=limits)

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
                parts.append(self.decoder(run, self.fetch(run, part_of)))
                done_bytes += self.sizes.weights_bytes_of(run)
            return lambda: runner.add(parts)

        return read

    def of_rank(self, ranks: int) -> CompactConfig:
        """See `StageEngine`."""
        config = require_shared(self.source.folder, self.sizes, ranks=ranks)
        return shard_config(config, Shard(rank=0, ranks=ranks))

    def rank(self, ranks: int, layers: range, limits: EngineLimits) -> "HelixRank":
        """See `StageEngine`."""
        return HelixRank(engine=self, layers=layers, limits=limits)

    def first_layers(self, count: int, limits: EngineLimits) -> HelixLayers:
        """See `StageEngine`. One layer stands for all, which are alike."""
        first = self.decoder(range(1), self.fetch(range(1), no_progress))
        return HelixLayers(decoder=first.repeating(count), limits=limits)

    def first_bytes(self, count: int) -> int:
        """See `StageEngine`."""
        return self.sizes.weights_bytes(0, 1)

    def decoder(self, layers: range, progress: Progress, *, ranks: Ranks = ALONE) -> Decoder:
        """`layers`, whose tensors were fetched, or the share of them that one of `ranks` has."""
        return load_decoder(
            self.source.folder,
            self.sizes,
            first=layers.start,
            end=layers.stop,
            device=self.device,
            progress=progress,
            ranks=ranks,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HelixRank:
    """One rank's share of layers on our own decoders. Implements `Rank`."""

    engine: HelixEngine
    layers: range
    limits: EngineLimits

    def meet(self, place: RankPlace) -> None:
        """See `Rank`."""
        distributed.init_process_group(
            "nccl" if self.engine.device.type == "cuda" else "gloo",
            init_method=f"file://{place.meeting}/group",
            rank=place.rank,
            world_size=place.ranks,
            timeout=place.patience,
        )

    def read(self, progress: Progress) -> HelixLayers:
        """See `Rank`."""
        group = distributed.group.WORLD
        if group is None:
            raise RuntimeError("this rank has not met the others")
        decoder = self.engine.decoder(self.layers, progress, ranks=Ranks.of(group))
        return HelixLayers(decoder=decoder, limits=self.limits)

    def leave(self) -> None:
        """See `Rank`."""
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _tell_part(
    progress: Progress, before_bytes: int, all_bytes: int, done_bytes: int, _: int
) -> None:
    """The progress of one run of layers as that of all."""
    progress(before_bytes + done_bytes, all_bytes)
