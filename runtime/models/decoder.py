"""What the engine knows of a model: some of its layers, run row by row, attention its own.

Legend: T tokens in the step, R some of them, D hidden, N heads, K KV heads, H head size,
V vocabulary.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor

from runtime.models.model_config import ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRule:
    """How a layer attends: scores are query times key times `scale`, bent by
    `softcap * tanh(scores / softcap)` if given; a row sees its last `window` tokens, itself
    included, or all."""

    scale: float
    window: int | None = None
    softcap: float | None = None


class Attend(Protocol):
    """Attention over all that the rows' requests have cached."""

    def __call__(
        self,
        layer: int,
        query_TNH: Tensor,
        key_TKH: Tensor,
        value_TKH: Tensor,
        rule: AttentionRule,
        /,
    ) -> Tensor:
        """Attended rows [T, N, H]; remembers key and value for later steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """What the layers of a step need of the rows' positions, made once for all of them.

    cos and sin by kind of layer: most models have one kind, named "".
    """

    positions_T: Tensor
    angles: dict[str, tuple[Tensor, Tensor]]

    def of_rows(self, rows_R: Tensor) -> "Rotation":
        """The same for some of the rows, by index."""
        return Rotation(
            positions_T=self.positions_T[rows_R],
            angles={kind: (cos[rows_R], sin[rows_R]) for kind, (cos, sin) in self.angles.items()},
        )


class Decoder(Protocol):
    """Weights of the layers in `held` and their mathematics. Keeps nothing between calls."""

    @property
    def config(self) -> ModelConfig: ...

    @property
    def held(self) -> Collection[int]:
        """The layers whose weights it has, as numbered in the model."""

    @property
    def device(self) -> torch.device: ...

    def embed(self, token_ids_T: Tensor) -> Tensor:
        """Token ids [T], int64 -> hidden [T, D]. Only where layer 0 is."""

    def rotation(self, positions_T: Tensor) -> Rotation:
        """What `run_layer` needs to know of the rows' positions in their sequences."""

    def run_layer(
        self, layer: int, hidden_TD: Tensor, *, rotation: Rotation, attend: Attend
    ) -> Tensor:
        """hidden [T, D] before `layer` (as numbered in the model) -> after it, residual added."""

    def logits(self, hidden_TD: Tensor) -> Tensor:
        """hidden [T, D] after the last layer -> logits [T, V], float32. Only where that is."""

    def repeating(self, count: int) -> Self:
        """Its first layer as layers [0, count), for timing steps of as many."""
