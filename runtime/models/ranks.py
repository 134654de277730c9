"""The processes that share the layers of one stage, seen from one of them.

Legend: T rows, D hidden, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, distributed
from torch.nn import functional

from runtime.models.sharding import WHOLE, Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """What a rank asks of the others; each must ask the same in the same order.

    `group` of `torch.distributed`: gloo on CPU, NCCL on GPU; None: a stage of one process.
    """

    shard: Shard = WHOLE
    group: distributed.ProcessGroup | None = None

    @classmethod
    def of(cls, group: distributed.ProcessGroup) -> "Ranks":
        rank, ranks = distributed.get_rank(group), distributed.get_world_size(group)
        return cls(shard=Shard(rank=rank, ranks=ranks), group=group)

    def sum(self, part_TD: Tensor) -> Tensor:
        """The ranks' tensors added up; may overwrite the argument."""
        if self.group is not None:
            distributed.all_reduce(part_TD, group=self.group)
        return part_TD

    def join(self, part_TV: Tensor, *, width: int) -> Tensor:
        """The ranks' columns side by side, `width` in all; rank r has those of
        [r, r + 1) * ceil(width / ranks)."""
        if self.group is None:
            return part_TV[:, :width]
        each = -(-width // self.shard.ranks)
        padded_TV = functional.pad(part_TV, (0, each - part_TV.shape[1])).contiguous()
        parts = [torch.empty_like(padded_TV) for _ in range(self.shard.ranks)]
        distributed.all_gather(parts, padded_TV, group=self.group)
        return torch.cat(parts, dim=1)[:, :width]


ALONE = Ranks()
