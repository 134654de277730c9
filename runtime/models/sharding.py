"""Which pieces of a layer's tensors a tensor-parallel rank holds (Megatron's split).

Query, key, value, gate and up are split by rows: a rank computes whole heads and whole MLP
columns. Output and down are split by columns: each rank's product is a summand of the layer's.
Where there are fewer KV heads than ranks, ranks that serve the same one each hold it.
"""

import math
from dataclasses import dataclass, replace

from runtime.models.checkpoint import Piece
from runtime.models.config import CompactConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """Rank `rank` of `ranks`."""

    rank: int
    ranks: int

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.ranks:
            raise ValueError(f"rank is {self.rank}; it must be 0 or more and below {self.ranks}")

    def of(self, count: int, *, size: int = 1) -> tuple[int, int]:
        """This rank's [start, stop) of `count` things of `size` each, as even as can be."""
        start, stop = self.rank * count // self.ranks, (self.rank + 1) * count // self.ranks
        return start * size, stop * size


WHOLE = Shard(rank=0, ranks=1)


def shard_config(config: CompactConfig, shard: Shard) -> CompactConfig:
    """What a rank sees: its own heads and MLP columns, all else as it was.

    Raises CheckpointError when the heads cannot be dealt out evenly.
    """
    if shard.ranks == 1:
        return config
    inner_start, inner_stop = shard.of(config.intermediate_size)
    return replace(
        config.of_rank(shard.ranks),
        intermediate_size=inner_stop - inner_start,
        layer_bytes=tuple(
            config.element_bytes
            * sum(
                math.prod(piece.size)
                for pieces in layer_pieces(config, layer, shard).values()
                for piece in pieces
            )
            for layer in range(config.num_layers)
        ),
    )


def layer_pieces(config: CompactConfig, layer: int, shard: Shard) -> dict[str, tuple[Piece, ...]]:
    """Field of `LayerWeights` -> the pieces stacked in it, for a config of the whole model."""
    hidden, size = config.hidden_size, config.head_size
    prefix = f"model.layers.{layer}."
    attention = prefix + "self_attn."
    query = shard.of(config.num_heads, size=size)
    kv_start = shard.rank * config.num_kv_heads // shard.ranks
    kv_count = max(1, config.num_kv_heads // shard.ranks)
    key = (kv_start * size, (kv_start + kv_count) * size)
    inner = shard.of(config.intermediate_size)
    rows = {"q": query, "k": key, "v": key}
    totals = {"q": config.query_size, "k": config.kv_size, "v": config.kv_size}

    def vector(name: str, length: int) -> tuple[Piece, ...]:
        return (Piece(name=name, shape=(length,), rows=(0, length)),)

    def columns(name: str, total: int, span: tuple[int, int]) -> tuple[Piece, ...]:
        return (Piece(name=name, shape=(hidden, total), rows=(0, hidden), columns=span),)

    pieces = {
        "attention_norm_D": vector(prefix + "input_layernorm.weight", hidden),
        "query_key_value_ED": tuple(
            Piece(
                name=f"{attention}{part}_proj.weight",
                shape=(totals[part], hidden),
                rows=rows[part],
            )
            for part in "qkv"
        ),
        "output_DE": columns(attention + "o_proj.weight", config.query_size, query),
        "mlp_norm_D": vector(prefix + "post_attention_layernorm.weight", hidden),
        "gate_up_ID": tuple(
            Piece(
                name=f"{prefix}mlp.{part}_proj.weight",
                shape=(config.intermediate_size, hidden),
                rows=inner,
            )
            for part in ("gate", "up")
        ),
        "down_DI": columns(prefix + "mlp.down_proj.weight", config.intermediate_size, inner),
    }
    if config.qkv_bias:
        pieces["query_key_value_E"] = tuple(
            Piece(name=f"{attention}{part}_proj.bias", shape=(totals[part],), rows=rows[part])
            for part in "qkv"
        )
    if config.qk_norm:
        pieces["query_norm_H"] = vector(attention + "q_norm.weight", size)
        pieces["key_norm_H"] = vector(attention + "k_norm.weight", size)
    return pieces
