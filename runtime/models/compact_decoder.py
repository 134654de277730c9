"""Layers of our own families, with embedding and output head where they belong.

Legend: T tokens in the step, D hidden, N heads, K KV heads, H head size, V vocabulary,
E = (N + 2 K) H, I intermediate. Where keys and values live is not this file's business: a layer
hands them to `attend`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from runtime.models.checkpoint import Piece
from runtime.models.config import CompactConfig
from runtime.models.decoder import Attend, AttentionRule, Rotation
from runtime.models.layers import gated_mlp, rms_norm, rotary_angles, rotate
from runtime.models.linear import linear
from runtime.models.ranks import Ranks
from runtime.models.sharding import WHOLE, Shard, layer_pieces, shard_config

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head.weight"
# the pieces of tensors one under the other
Stack = Callable[[Sequence[Piece]], Tensor]
# What a cache may keep of weights: copies of a layer are as far from it as other layers would be.
_CACHED_BYTES = 2**27
_ROTATED_ALIKE = ""  # all layers of these families share one kind of rotation


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One layer; query, key and value fused into one matrix, gate and up into another. `rule`: how
    its attention works."""

    rule: AttentionRule
    attention_norm_D: Tensor
    query_key_value_ED: Tensor
    output_DE: Tensor
    mlp_norm_D: Tensor
    gate_up_ID: Tensor
    down_DI: Tensor
    query_key_value_E: Tensor | None = None  # bias
    query_norm_H: Tensor | None = None
    key_norm_H: Tensor | None = None

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def copied(self) -> "LayerWeights":
        """The same numbers elsewhere in memory."""
        copies: dict[str, Any] = {name: one.clone() for name, one in self.tensors().items()}
        return replace(self, **copies)

    def tensors(self) -> dict[str, Tensor]:
        """Those that it has, by field."""
        held = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: one for name, one in held.items() if isinstance(one, Tensor)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactDecoder:
    """A `Decoder` of our own families, run by a stage's backend.

    `layers` by their numbers in the model. `embedding_VD` only with the first, `head_VD` and
    `final_norm_D` only with the last. Of several `ranks` each holds its pieces of the layers and
    its rows of the head; `config` has its sizes, hidden states and logits are whole on each.
    """

    config: CompactConfig
    ranks: Ranks
    layers: Mapping[int, LayerWeights]
    embedding_VD: Tensor | None
    final_norm_D: Tensor | None
    head_VD: Tensor | None
    frequencies_F: Tensor

    @property
    def held(self) -> Collection[int]:
        return self.layers.keys()

    @property
    def device(self) -> torch.device:
        return self.frequencies_F.device

    def embed(self, token_ids_T: Tensor) -> Tensor:
        """See `Decoder`. Raises ValueError where there is no embedding."""
        if self.embedding_VD is None:
            raise ValueError(f"no embedding: it goes with layer 0, held are {sorted(self.held)}")
        return functional.embedding(token_ids_T, self.embedding_VD)

    def rotation(self, positions_T: Tensor) -> Rotation:
        config = self.config
        angles = rotary_angles(
            positions_T,
            self.frequencies_F,
            dtype=config.dtype,
            amplitude=config.rope.amplitude,
        )
        return Rotation(positions_T=positions_T, angles={_ROTATED_ALIKE: angles})

    def run_layer(
        self, layer: int, hidden_TD: Tensor, *, rotation: Rotation, attend: Attend
    ) -> Tensor:
        config = self.config
        weights = self.layers[layer]
        normed_TD = rms_norm(hidden_TD, weights.attention_norm_D, eps=config.rms_norm_eps)
        fused_TE = linear(normed_TD, weights.query_key_value_ED, weights.query_key_value_E)
        fused_TAH = fused_TE.view(len(fused_TE), -1, config.head_size)  # A = N + 2 K
        key_at, value_at = config.num_heads, config.num_heads + config.num_kv_heads
        query_TNH, key_TKH = fused_TAH[:, :key_at], fused_TAH[:, key_at:value_at]
        if weights.query_norm_H is not None and weights.key_norm_H is not None:
            query_TNH = rms_norm(query_TNH, weights.query_norm_H, eps=config.rms_norm_eps)
            key_TKH = rms_norm(key_TKH, weights.key_norm_H, eps=config.rms_norm_eps)
        cos_TH, sin_TH = rotation.angles[_ROTATED_ALIKE]
        attended_TNH = attend(
            layer,
            rotate(query_TNH, cos_TH, sin_TH),
            rotate(key_TKH, cos_TH, sin_TH),
            fused_TAH[:, value_at:],
            weights.rule,
        )
        projected_TD = linear(attended_TNH.flatten(1), weights.output_DE)
        hidden_TD = hidden_TD + self.ranks.sum(projected_TD)
        normed_TD = rms_norm(hidden_TD, weights.mlp_norm_D, eps=config.rms_norm_eps)
        mlp_TD = gated_mlp(normed_TD, weights.gate_up_ID, weights.down_DI)
        return hidden_TD + self.ranks.sum(mlp_TD)

    def logits(self, hidden_TD: Tensor) -> Tensor:
        """See `Decoder`. Raises ValueError where there is no head."""
        if self.final_norm_D is None or self.head_VD is None:
            raise ValueError(f"no head: it goes with the last layer, held are {sorted(self.held)}")
        normed_TD = rms_norm(hidden_TD, self.final_norm_D, eps=self.config.rms_norm_eps)
        logits_TV = linear(normed_TD, self.head_VD)
        return self.ranks.join(logits_TV, width=self.config.vocab_size).float()

    def joined(self, other: "CompactDecoder") -> "CompactDecoder":
        """With the layers of `other` too, which has none of these, and what goes with them.

        Where head and embedding are one table, they are so again though read apart.
        """
        if twice := self.layers.keys() & other.layers.keys():
            raise ValueError(f"layers {sorted(twice)} are held twice")
        embedding_VD = other.embedding_VD if self.embedding_VD is None else self.embedding_VD
        final, head_VD = (other, other.head_VD) if self.head_VD is None else (self, self.head_VD)
        if head_VD is not None and embedding_VD is not None and self.config.tie_word_embeddings:
            head_VD = embedding_VD
        return replace(
            self,
            layers={**self.layers, **other.layers},
            embedding_VD=embedding_VD,
            final_norm_D=final.final_norm_D,
            head_VD=head_VD,
        )

    def only(self, wanted: Collection[int]) -> "CompactDecoder":
        """Those layers that are in `wanted`, and what goes with them; the weights are shared."""
        layers = {layer: one for layer, one in self.layers.items() if layer in wanted}
        has_head = self.config.num_layers - 1 in layers
        return replace(
            self,
            layers=layers,
            embedding_VD=self.embedding_VD if 0 in layers else None,
            final_norm_D=self.final_norm_D if has_head else None,
            head_VD=self.head_VD if has_head else None,
        )

    def repeating(self, count: int) -> "CompactDecoder":
        layer = next(iter(self.layers.values()))
        are_copied = count * layer.nbytes <= _CACHED_BYTES
        layers = {n: layer.copied() if n and are_copied else layer for n in range(count)}
        return replace(self, layers=layers)


def tensor_shapes(config: CompactConfig, first: int, end: int) -> dict[str, tuple[int, ...]]:
    """Checkpoint names and shapes of what a stage holding layers [first, end) reads."""
    table = (config.vocab_size, config.hidden_size)
    last = end == config.num_layers
    shapes: dict[str, tuple[int, ...]] = {}
    if first == 0 or (last and config.tie_word_embeddings):
        shapes[EMBEDDING] = table
    for layer in range(first, end):
        pieces = layer_pieces(config, layer, WHOLE).values()
        shapes |= {piece.name: piece.shape for stacked in pieces for piece in stacked}
    if last:
        shapes[FINAL_NORM] = (config.hidden_size,)
        if not config.tie_word_embeddings:
            shapes[HEAD] = table
    return shapes


def stack_layer(config: CompactConfig, layer: int, stack: Stack, shard: Shard) -> LayerWeights:
    """One layer's weights, for a `config` of the whole model."""
    pieces = layer_pieces(config, layer, shard)
    rule = AttentionRule(scale=config.head_size**-0.5, window=config.windows[layer])
    return LayerWeights(rule=rule, **{field: stack(one) for field, one in pieces.items()})


def build_decoder(
    config: CompactConfig,
    *,
    layers: Mapping[int, LayerWeights],
    stack: Stack,
    ranks: Ranks,
    device: torch.device,
) -> CompactDecoder:
    """A decoder of `layers`, with embedding, norm and head where they belong."""
    table = (config.vocab_size, config.hidden_size)
    each = -(-config.vocab_size // ranks.shard.ranks)
    start = min(config.vocab_size, ranks.shard.rank * each)
    rows = (start, min(config.vocab_size, start + each))
    embedding_VD = final_norm_D = head_VD = None
    if 0 in layers:
        embedding_VD = stack((Piece(name=EMBEDDING, shape=table, rows=(0, config.vocab_size)),))
    if config.num_layers - 1 in layers:
        width = config.hidden_size
        final_norm_D = stack((Piece(name=FINAL_NORM, shape=(width,), rows=(0, width)),))
        if embedding_VD is not None and config.tie_word_embeddings:
            head_VD = embedding_VD[slice(*rows)]
        else:
            name = EMBEDDING if config.tie_word_embeddings else HEAD
            head_VD = stack((Piece(name=name, shape=table, rows=rows),))
    return CompactDecoder(
        config=shard_config(config, ranks.shard),
        ranks=ranks,
        layers=layers,
        embedding_VD=embedding_VD,
        final_norm_D=final_norm_D,
        head_VD=head_VD,
        frequencies_F=torch.tensor(config.rope.frequencies, device=device),
    )
