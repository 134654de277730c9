"""The processes that share the layers of one stage, seen from one of them.

Legend: T rows, D hidden, V vocabulary.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, distributed
from torch.nn import functional

from runtime.models.sharding import WHOLE, Shard


class Ranks(Protocol):
    """What a rank asks of the others; each must ask the same in the same order."""

    @property
    def shard(self) -> Shard: ...

    def sum(self, part_TD: Tensor) -> Tensor:
        """The ranks' tensors added up; may overwrite the argument."""

    def join(self, part_TV: Tensor, *, width: int) -> Tensor:
        """The ranks' columns side by side, `width` in all; rank r has those of
        [r, r + 1) * ceil(width / ranks)."""


class Alone:
    """A stage of one process."""

    @property
    def shard(self) -> Shard:
        return WHOLE

    def sum(self, part_TD: Tensor) -> Tensor:
        return part_TD

    def join(self, part_TV: Tensor, *, width: int) -> Tensor:
        return part_TV[:, :width]


ALONE = Alone()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRanks:
    """Ranks of a `torch.distributed` group: gloo on CPU, NCCL on GPU."""

    group: distributed.ProcessGroup
    shard: Shard

    @classmethod
    def of(cls, group: distributed.ProcessGroup) -> "ProcessRanks":
        return cls(
            group=group,
            shard=Shard(rank=distributed.get_rank(group), ranks=distributed.get_world_size(group)),
        )

    def sum(self, part_TD: Tensor) -> Tensor:
        distributed.all_reduce(part_TD, group=self.group)
        return part_TD

    def join(self, part_TV: Tensor, *, width: int) -> Tensor:
        each = -(-width // self.shard.ranks)
        padded_TV = functional.pad(part_TV, (0, each - part_TV.shape[1])).contiguous()
        parts = [torch.empty_like(padded_TV) for _ in range(self.shard.ranks)]
        distributed.all_gather(parts, padded_TV, group=self.group)
        return torch.cat(parts, dim=1)[:, :width]
