"""The ranks of a stage that vLLM's model code computes: its layers shard their weights themselves,
and add up what the ranks computed."""

from dataclasses import dataclass
from pathlib import Path

import torch

from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.engine import vllm_compat as compat
from runtime.engine.follower import PATIENCE, take_device
from runtime.engine.limits import EngineLimits
from runtime.engine.vllm_loading import Progress, VllmLayers, check_layers
from runtime.engine.vllm_runner import VllmRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmShare:
    """Layers of a checkpoint, and the CPU threads of each rank. `sizes` are those of a rank.

    `device_type` "cuda" gives each rank a GPU. Rows come in `wire_dtype`. Implements `RankShare`.
    """

    checkpoint: Path
    sizes: DecoderSizes
    layers: range
    limits: EngineLimits
    wire_dtype: torch.dtype
    threads: int
    device_type: str

    def part(self, *, rank: int, ranks: int, meeting: str) -> "VllmPart":
        return VllmPart(self, rank=rank, ranks=ranks, meeting=meeting)


class VllmPart:
    """One rank's share of a stage on vLLM; its rank process calls it.

    Implements `RankPart`. Raises CannotRun, CheckpointError.
    """

    def __init__(self, share: VllmShare, *, rank: int, ranks: int, meeting: str) -> None:
        torch.set_num_threads(share.threads)
        self.device = take_device(share.device_type, rank)
        self._rank, self._ranks, self._meeting = rank, ranks, meeting
        self._unread = check_layers(
            share.checkpoint,
            share.sizes,
            share.layers,
            limits=share.limits,
            ranks=ranks,
        )
        self._wire_dtype = share.wire_dtype
        self._layers: VllmLayers

    @property
    def engine(self) -> str:
        return self._layers.engine

    def meet(self) -> None:
        compat.join_ranks(
            self._unread.config,
            rank=self._rank,
            ranks=self._ranks,
            meeting=self._meeting,
            patience=PATIENCE,
        )

    def load(self, progress: Progress) -> None:
        self._layers = self._unread.read(progress)

    def runner(self, *, pages: int) -> VllmRunner:
        return self._layers.runner(pages=pages, wire_dtype=self._wire_dtype)

    def leave(self) -> None:
        compat.leave_ranks()
