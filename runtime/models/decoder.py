"""Layers [first, end) of a Llama model, with embedding and output head where the range has them.

Legend: T tokens in the step, D hidden, N heads, K KV heads, H head size, V vocabulary,
E = (N + 2 K) H, I intermediate. Where keys and values live is not this file's business: a layer
hands them to `attend`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from runtime.models.config import ModelConfig
from runtime.models.layers import gated_mlp, inverse_frequencies, rms_norm, rotary_angles, rotate

# (layer, query_TNH, key_TKH, value_TKH) -> attended_TNH; remembers key and value for later steps
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One layer; query, key and value fused into one matrix, gate and up into another."""

    attention_norm_D: Tensor
    query_key_value_ED: Tensor
    output_DE: Tensor
    mlp_norm_D: Tensor
    gate_up_ID: Tensor
    down_DI: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """cos and sin of the rows of a step, shared by all its layers."""

    cos_TH: Tensor
    sin_TH: Tensor

    def of_rows(self, rows_R: Tensor) -> "Rotation":
        """The same for some of the rows, by index."""
        return Rotation(cos_TH=self.cos_TH[rows_R], sin_TH=self.sin_TH[rows_R])


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """Weights of layers [first, end). `embedding_VD` only if first is 0, `head_VD` and
    `final_norm_D` only if end is the model's last."""

    config: ModelConfig
    first: int
    layers: tuple[LayerWeights, ...]
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
        """Token ids [T], int64 -> hidden [T, D]. Only where layer 0 is."""
        if self.embedding_VD is None:
            raise ValueError(f"layers [{self.first}, {self.end}) have no embedding: not the first")
        return functional.embedding(token_ids_T, self.embedding_VD)

    def rotation(self, positions_T: Tensor) -> Rotation:
        """What `run_layer` needs to know of the rows' positions in their sequences."""
        cos_TH, sin_TH = rotary_angles(positions_T, self.frequencies_F, self.config.dtype)
        return Rotation(cos_TH=cos_TH, sin_TH=sin_TH)

    def run_layer(
        self, layer: int, hidden_TD: Tensor, *, rotation: Rotation, attend: Attend
    ) -> Tensor:
        """hidden [T, D] before `layer` (as numbered in the model) -> after it, residual added."""
        config = self.config
        weights = self.layers[layer - self.first]
        normed_TD = rms_norm(hidden_TD, weights.attention_norm_D, eps=config.rms_norm_eps)
        fused_TE = functional.linear(normed_TD, weights.query_key_value_ED)
        fused_TAH = fused_TE.view(len(fused_TE), -1, config.head_size)  # A = N + 2 K
        key_at, value_at = config.num_heads, config.num_heads + config.num_kv_heads
        query_TNH = rotate(fused_TAH[:, :key_at], rotation.cos_TH, rotation.sin_TH)
        key_TKH = rotate(fused_TAH[:, key_at:value_at], rotation.cos_TH, rotation.sin_TH)
        attended_TNH = attend(layer, query_TNH, key_TKH, fused_TAH[:, value_at:])
        hidden_TD = hidden_TD + functional.linear(attended_TNH.flatten(1), weights.output_DE)
        normed_TD = rms_norm(hidden_TD, weights.mlp_norm_D, eps=config.rms_norm_eps)
        return hidden_TD + gated_mlp(normed_TD, weights.gate_up_ID, weights.down_DI)

    def logits(self, hidden_TD: Tensor) -> Tensor:
        """hidden [T, D] after the last layer -> logits [T, V], float32. Only where that is."""
        if self.final_norm_D is None or self.head_VD is None:
            raise ValueError(f"layers [{self.first}, {self.end}) have no head: not the last")
        normed_TD = rms_norm(hidden_TD, self.final_norm_D, eps=self.config.rms_norm_eps)
        return functional.linear(normed_TD, self.head_VD).float()


def tensor_shapes(config: ModelConfig, first: int, end: int) -> dict[str, tuple[int, ...]]:
    """Checkpoint names and shapes of what a stage holding layers [first, end) reads."""
    hidden, inner = config.hidden_size, config.intermediate_size
    table = (config.vocab_size, hidden)
    last = end == config.num_layers
    shapes: dict[str, tuple[int, ...]] = {}
    if first == 0 or (last and config.tie_word_embeddings):
        shapes[EMBEDDING] = table
    for layer in range(first, end):
        prefix = f"model.layers.{layer}."
        shapes |= {
            prefix + "input_layernorm.weight": (hidden,),
            prefix + "self_attn.q_proj.weight": (config.query_size, hidden),
            prefix + "self_attn.k_proj.weight": (config.kv_size, hidden),
            prefix + "self_attn.v_proj.weight": (config.kv_size, hidden),
            prefix + "self_attn.o_proj.weight": (hidden, config.query_size),
            prefix + "post_attention_layernorm.weight": (hidden,),
            prefix + "mlp.gate_proj.weight": (inner, hidden),
            prefix + "mlp.up_proj.weight": (inner, hidden),
            prefix + "mlp.down_proj.weight": (hidden, inner),
        }
    if last:
        shapes[FINAL_NORM] = (hidden,)
        if not config.tie_word_embeddings:
            shapes[HEAD] = table
    return shapes


def layer_weights(tensors: Mapping[str, Tensor], layer: int) -> LayerWeights:
    """Fuse the checkpoint tensors of one layer; the result shares no memory with fused inputs."""
    prefix = f"model.layers.{layer}."
    attention = [tensors[f"{prefix}self_attn.{part}_proj.weight"] for part in "qkv"]
    gate_up = [tensors[f"{prefix}mlp.{part}_proj.weight"] for part in ("gate", "up")]
    return LayerWeights(
        attention_norm_D=tensors[prefix + "input_layernorm.weight"],
        query_key_value_ED=torch.cat(attention),
        output_DE=tensors[prefix + "self_attn.o_proj.weight"],
        mlp_norm_D=tensors[prefix + "post_attention_layernorm.weight"],
        gate_up_ID=torch.cat(gate_up),
        down_DI=tensors[prefix + "mlp.down_proj.weight"],
    )


def build_decoder(
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    *,
    first: int,
    layers: tuple[LayerWeights, ...],
    device: torch.device,
) -> Decoder:
    """A decoder of `layers`, with embedding, norm and head from `tensors` where they belong."""
    last = first + len(layers) == config.num_layers
    return Decoder(
        config=config,
        first=first,
        layers=layers,
        embedding_VD=tensors[EMBEDDING] if first == 0 else None,
        final_norm_D=tensors[FINAL_NORM] if last else None,
        head_VD=tensors[EMBEDDING if config.tie_word_embeddings else HEAD] if last else None,
        frequencies_F=inverse_frequencies(config, device=device),
    )
