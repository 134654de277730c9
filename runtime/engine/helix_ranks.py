"""The ranks of a stage that our own decoders compute."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import distributed

from runtime.engine.follower import PATIENCE, take_device
from runtime.engine.kv_cache import KvCache
from runtime.engine.model_runner import ModelRunner
from runtime.models.checkpoint import Progress
from runtime.models.config import read_config
from runtime.models.decoder import Decoder
from runtime.models.ranks import Ranks
from runtime.models.weights import load_decoder


@dataclass(frozen=True, slots=True, kw_only=True)
class HelixShare:
    """Layers [first, end) of a checkpoint, and the CPU threads of each rank.

    `device_type` "cuda" gives each rank a GPU. Rows are computed in `dtype_name` and come in
    `wire_dtype`. Implements `RankShare`.
    """

    checkpoint: Path
    first: int
    end: int
    page_tokens: int
    max_context_tokens: int
    threads: int
    device_type: str
    dtype_name: str
    wire_dtype: torch.dtype

    def part(self, *, rank: int, ranks: int, meeting: str) -> "HelixPart":
        return HelixPart(self, rank=rank, ranks=ranks, meeting=meeting)


class HelixPart:
    """One rank's share of a stage on our own decoder; its rank process calls it.

    Implements `RankPart`.
    """

    def __init__(self, share: HelixShare, *, rank: int, ranks: int, meeting: str) -> None:
        self.device = take_device(share.device_type, rank)
        self._share = share
        self._rank, self._ranks, self._meeting = rank, ranks, meeting
        self._decoder: Decoder

    @property
    def engine(self) -> str:
        return f"helix in {self._share.dtype_name}"

    def meet(self) -> None:
        torch.set_num_threads(self._share.threads)
        distributed.init_process_group(
            "nccl" if self.device.type == "cuda" else "gloo",
            init_method=f"file://{self._meeting}/group",
            rank=self._rank,
            world_size=self._ranks,
            timeout=PATIENCE,
        )

    def load(self, progress: Progress) -> None:
        group = distributed.group.WORLD
        if group is None:
            raise RuntimeError(f"rank {self._rank} of {self._ranks} has not met the others")
        share = self._share
        self._decoder = load_decoder(
            share.checkpoint,
            read_config(share.checkpoint).computed_in(share.dtype_name),
            first=share.first,
            end=share.end,
            device=self.device,
            progress=progress,
            ranks=Ranks.of(group),
        )

    def runner(self, *, pages: int) -> ModelRunner:
        share, decoder = self._share, self._decoder
        cache = KvCache(
            decoder.config, pages=pages, page_tokens=share.page_tokens, device=self.device
        )
        return ModelRunner(
            decoder,
            cache,
            max_context_tokens=share.max_context_tokens,
            wire_dtype=share.wire_dtype,
        )

    def leave(self) -> None:
        if distributed.is_initialized():
            distributed.destroy_process_group()
