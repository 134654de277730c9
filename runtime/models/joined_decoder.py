"""Layers of one model that were loaded one part after another, run as if they were one decoder.

Legend: T tokens in the step, D hidden, V vocabulary.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from runtime.models.compact_decoder import CompactDecoder
from runtime.models.config import CompactConfig
from runtime.models.decoder import Attend, Rotation


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedDecoder:
    """A `Decoder` of parts of one checkpoint on one device, by layer; make it with `join`."""

    parts: tuple[CompactDecoder, ...]
    by_layer: dict[int, CompactDecoder]

    @property
    def config(self) -> CompactConfig:
        return self.parts[0].config

    @property
    def held(self) -> Collection[int]:
        return self.by_layer.keys()

    @property
    def device(self) -> torch.device:
        return self.parts[0].device

    def embed(self, token_ids_T: Tensor) -> Tensor:
        """See `Decoder`. Raises ValueError where there is no embedding."""
        return self._part_with(0, "embedding").embed(token_ids_T)

    def rotation(self, positions_T: Tensor) -> Rotation:
        return self.parts[0].rotation(positions_T)

    def run_layer(
        self, layer: int, hidden_TD: Tensor, *, rotation: Rotation, attend: Attend
    ) -> Tensor:
        part = self.by_layer[layer]
        return part.run_layer(layer, hidden_TD, rotation=rotation, attend=attend)

    def logits(self, hidden_TD: Tensor) -> Tensor:
        """See `Decoder`. Raises ValueError where there is no head."""
        return self._part_with(self.config.num_layers - 1, "head").logits(hidden_TD)

    def _part_with(self, layer: int, what: str) -> CompactDecoder:
        part = self.by_layer.get(layer)
        if part is None:
            raise ValueError(f"no {what}: it goes with layer {layer}, held are {sorted(self.held)}")
        return part


def join(parts: Sequence[CompactDecoder]) -> JoinedDecoder:
    """All layers of `parts`, which hold each once. Raises ValueError when they do not.

    Where head and embedding are one table, they are so again though read with two parts.
    """
    config = parts[0].config
    embedding_VD = next((part.embedding_VD for part in parts if part.first == 0), None)
    if config.tie_word_embeddings and embedding_VD is not None:
        parts = [
            part if part.head_VD is None else replace(part, head_VD=embedding_VD) for part in parts
        ]
    by_layer = {layer: part for part in parts for layer in part.held}
    if len(by_layer) != sum(len(part.held) for part in parts):
        raise ValueError(f"a layer is held twice: {[(part.first, part.end) for part in parts]}")
    return JoinedDecoder(parts=tuple(parts), by_layer=by_layer)
