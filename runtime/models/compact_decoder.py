"""Layers [first, end) of our own families, with embedding and output head where they belong.

Legend: T tokens in the step, D hidden, N heads, K KV heads, H head size, V vocabulary,
E = (N + 2 K) H, I intermediate. Where keys and values live is not this file's business: a layer
hands them to `attend`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from runtime.models.config import CompactConfig
from runtime.models.decoder import Attend, AttentionRule, Rotation
from runtime.models.layers import gated_mlp, rms_norm, rotary_angles, rotate
from runtime.models.rope import inverse_frequencies

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head.weight"
_ROTATED_ALIKE = ""  # all layers of these families share one kind of rotation


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One layer; query, key and value fused into one matrix, gate and up into another."""

    attention_norm_D: Tensor
    query_key_value_ED: Tensor
    query_key_value_E: Tensor | None  # bias
    query_norm_H: Tensor | None
    key_norm_H: Tensor | None
    output_DE: Tensor
    mlp_norm_D: Tensor
    gate_up_ID: Tensor
    down_DI: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactDecoder:
    """A `Decoder`. `embedding_VD` only if first is 0, `head_VD` and `final_norm_D` only if end is
    the model's last."""

    config: CompactConfig
    first: int
    layers: tuple[LayerWeights, ...]
    rules: tuple[AttentionRule, ...]  # of `layers`
    embedding_VD: Tensor | None
    final_norm_D: Tensor | None
    head_VD: Tensor | None
    frequencies_F: Tensor

    @property
    def end(self) -> int:
        return self.first + len(self.layers)

    @property
    def device(self) -> torch.device:
        return self.frequencies_F.device

    def embed(self, token_ids_T: Tensor) -> Tensor:
        """See `Decoder`. Raises ValueError where there is no embedding."""
        if self.embedding_VD is None:
            raise ValueError(f"layers [{self.first}, {self.end}) have no embedding: not the first")
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
        weights = self.layers[layer - self.first]
        normed_TD = rms_norm(hidden_TD, weights.attention_norm_D, eps=config.rms_norm_eps)
        fused_TE = functional.linear(
            normed_TD, weights.query_key_value_ED, weights.query_key_value_E
        )
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
            self.rules[layer - self.first],
        )
        hidden_TD = hidden_TD + functional.linear(attended_TNH.flatten(1), weights.output_DE)
        normed_TD = rms_norm(hidden_TD, weights.mlp_norm_D, eps=config.rms_norm_eps)
        return hidden_TD + gated_mlp(normed_TD, weights.gate_up_ID, weights.down_DI)

    def logits(self, hidden_TD: Tensor) -> Tensor:
        """See `Decoder`. Raises ValueError where there is no head."""
        if self.final_norm_D is None or self.head_VD is None:
            raise ValueError(f"layers [{self.first}, {self.end}) have no head: not the last")
        normed_TD = rms_norm(hidden_TD, self.final_norm_D, eps=self.config.rms_norm_eps)
        return functional.linear(normed_TD, self.head_VD).float()

    def repeating(self, count: int) -> "CompactDecoder":
        return replace(self, layers=self.layers[:1] * count, rules=self.rules[:1] * count)


def layer_shapes(config: CompactConfig, layer: int) -> dict[str, tuple[int, ...]]:
    """Checkpoint names and shapes of the tensors of one layer."""
    hidden, inner = config.hidden_size, config.intermediate_size
    prefix = f"model.layers.{layer}."
    sizes = {"q": config.query_size, "k": config.kv_size, "v": config.kv_size}
    shapes: dict[str, tuple[int, ...]] = {prefix + "input_layernorm.weight": (hidden,)}
    for part, size in sizes.items():
        shapes[f"{prefix}self_attn.{part}_proj.weight"] = (size, hidden)
        if config.qkv_bias:
            shapes[f"{prefix}self_attn.{part}_proj.bias"] = (size,)
    if config.qk_norm:
        shapes[prefix + "self_attn.q_norm.weight"] = (config.head_size,)
        shapes[prefix + "self_attn.k_norm.weight"] = (config.head_size,)
    return shapes | {
        prefix + "self_attn.o_proj.weight": (hidden, config.query_size),
        prefix + "post_attention_layernorm.weight": (hidden,),
        prefix + "mlp.gate_proj.weight": (inner, hidden),
        prefix + "mlp.up_proj.weight": (inner, hidden),
        prefix + "mlp.down_proj.weight": (hidden, inner),
    }


def tensor_shapes(config: CompactConfig, first: int, end: int) -> dict[str, tuple[int, ...]]:
    """Checkpoint names and shapes of what a stage holding layers [first, end) reads."""
    table = (config.vocab_size, config.hidden_size)
    last = end == config.num_layers
    shapes: dict[str, tuple[int, ...]] = {}
    if first == 0 or (last and config.tie_word_embeddings):
        shapes[EMBEDDING] = table
    for layer in range(first, end):
        shapes |= layer_shapes(config, layer)
    if last:
        shapes[FINAL_NORM] = (config.hidden_size,)
        if not config.tie_word_embeddings:
            shapes[HEAD] = table
    return shapes


def layer_weights(tensors: Mapping[str, Tensor], layer: int) -> LayerWeights:
    """Fuse the checkpoint tensors of one layer; the result shares no memory with fused inputs."""
    prefix = f"model.layers.{layer}."
    attention = prefix + "self_attn."
    biases = [tensors.get(f"{attention}{part}_proj.bias") for part in "qkv"]
    present = [bias for bias in biases if bias is not None]
    return LayerWeights(
        attention_norm_D=tensors[prefix + "input_layernorm.weight"],
        query_key_value_ED=torch.cat([tensors[f"{attention}{part}_proj.weight"] for part in "qkv"]),
        query_key_value_E=torch.cat(present) if present else None,
        query_norm_H=tensors.get(attention + "q_norm.weight"),
        key_norm_H=tensors.get(attention + "k_norm.weight"),
        output_DE=tensors[attention + "o_proj.weight"],
        mlp_norm_D=tensors[prefix + "post_attention_layernorm.weight"],
        gate_up_ID=torch.cat(
            [tensors[f"{prefix}mlp.{part}_proj.weight"] for part in ("gate", "up")]
        ),
        down_DI=tensors[prefix + "mlp.down_proj.weight"],
    )


def build_decoder(
    config: CompactConfig,
    tensors: Mapping[str, Tensor],
    *,
    first: int,
    layers: tuple[LayerWeights, ...],
    device: torch.device,
) -> CompactDecoder:
    """A decoder of `layers`, with embedding, norm and head from `tensors` where they belong."""
    last = first + len(layers) == config.num_layers
    return CompactDecoder(
        config=config,
        first=first,
        layers=layers,
        rules=tuple(
            AttentionRule(scale=config.head_size**-0.5, window=window)
            for window in config.windows[first : first + len(layers)]
        ),
        embedding_VD=tensors[EMBEDDING] if first == 0 else None,
        final_norm_D=tensors[FINAL_NORM] if last else None,
        head_VD=tensors[EMBEDDING if config.tie_word_embeddings else HEAD] if last else None,
        frequencies_F=inverse_frequencies(config.rope, config.head_size, device=device),
    )
