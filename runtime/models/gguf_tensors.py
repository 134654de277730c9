"""Tensors of a GGUF file under the names of Hugging Face checkpoints, dequantised as they are read.

Rows are decoded some at a time, so that loading takes little memory beside the weights.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Never

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.gguf_header import GgufHeader, TensorInfo, read_header

_ELEMENTS_AT_ONCE = 2**18  # a few MB while they are decoded
_OUTSIDE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
# llama.cpp rotates neighbouring columns of a head, Hugging Face those half a head apart: in files
# of this architecture the rows of query and key were reordered for it
_REORDERED = "llama"


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufTensors:
    """A TensorFile over the mapped bytes of a GGUF file."""

    header: GgufHeader
    mapped: NDArray[np.uint8]
    infos: Mapping[str, TensorInfo]  # by Hugging Face's names
    heads: Mapping[str, int]  # of reordered tensors, by their last names

    @classmethod
    def of(cls, path: Path) -> "GgufTensors":
        """Raises CheckpointError for a type that cannot be decoded and a tensor that is cut off."""
        header = read_header(path)
        for info in header.tensors.values():
            _check(header, info)
        return cls(
            header=header,
            mapped=np.memmap(path, dtype=np.uint8, mode="r"),
            infos={_usual_name(name): info for name, info in header.tensors.items()},
            heads=_reordered_heads(header),
        )

    def names(self) -> Collection[str]:
        return self.infos.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self.infos[name].shape

    def rows(self, name: str, start: int, stop: int) -> Iterator[Tensor]:
        """See `TensorFile`; float32."""
        from gguf.quants import dequantize

        info = self.infos[name]
        type_ = _type_of(info)
        length = info.shape[-1]
        row_bytes = _row_bytes(info)
        end = info.offset + prod(info.shape[:-1]) * row_bytes
        stored = self.mapped[info.offset : end].reshape(-1, row_bytes)
        if len(info.shape) == 1:
            decoded = dequantize(np.ascontiguousarray(stored), type_).reshape(-1)
            yield torch.from_numpy(np.array(decoded[start:stop], dtype=np.float32))
            return
        step = max(1, _ELEMENTS_AT_ONCE // length)
        for at in range(start, stop, step):
            rows: NDArray[np.int64] = np.arange(at, min(at + step, stop))
            heads = self.heads.get(name.partition(".self_attn.")[2])
            if heads is not None:
                rows = _stored_rows(rows, head_size=info.shape[0] // heads)
            block = dequantize(stored[rows], type_).reshape(len(rows), length)
            yield torch.from_numpy(block.astype(np.float32, copy=False))


def _usual_name(name: str) -> str:
    """Hugging Face's name of a tensor. One that is not known in a layer stays recognisable as of
    that layer, so that it is refused when the layer is read."""
    found = _LAYER_NAME.fullmatch(name)
    if found is None:
        layer = re.match(r"blk\.(\d+)\.", name)
        if layer is None:
            return _OUTSIDE.get(name, name)
        return f"model.layers.{layer[1]}.{name[layer.end() :]}"
    layer_number, part, kind = found.groups()
    return f"model.layers.{layer_number}.{_IN_LAYER.get(part, part)}.{kind}"


def _reordered_heads(header: GgufHeader) -> dict[str, int]:
    if header.get("general.architecture") != _REORDERED:
        return {}
    heads = header.get("llama.attention.head_count")
    kv_heads = header.get("llama.attention.head_count_kv") or heads
    counts = {"q_proj": heads, "k_proj": kv_heads}
    return {
        f"{part}.{kind}": count
        for part, count in counts.items()
        for kind in ("weight", "bias")
        if isinstance(count, int) and count > 0
    }


def _stored_rows(rows: NDArray[np.int64], *, head_size: int) -> NDArray[np.int64]:
    """Where the file has these rows of a reordered matrix: the two halves of each head are
    interleaved there."""
    within = rows % head_size
    half, place = np.divmod(within, head_size // 2)
    stored: NDArray[np.int64] = rows - within + 2 * place + half
    return stored


def _type_of(info: TensorInfo) -> Any:
    """Raises ValueError for a number that the gguf package does not know."""
    from gguf import GGMLQuantizationType

    return GGMLQuantizationType(info.type_number)


def _row_bytes(info: TensorInfo) -> int:
    from gguf.constants import GGML_QUANT_SIZES

    block, block_bytes = GGML_QUANT_SIZES[_type_of(info)]
    return info.shape[-1] // block * block_bytes


def _check(header: GgufHeader, info: TensorInfo) -> None:
    """That its type can be decoded, and that the file has all its bytes. Raises CheckpointError."""

    def refuse(what: str, remedy: str) -> Never:
        raise CheckpointError(f"{header.path}: tensor {info.name!r} {what}; {remedy}")

    try:
        from gguf.constants import GGML_QUANT_SIZES
        from gguf.quants import dequantize
    except ImportError:
        raise CheckpointError(
            f"{header.path} needs the gguf package on this node; run: pip install 'helixweb[agent]'"
        ) from None
    try:
        type_ = _type_of(info)
        block, block_bytes = GGML_QUANT_SIZES[type_]
        dequantize(np.zeros((1, block_bytes), dtype=np.uint8), type_)
    except (ValueError, KeyError, NotImplementedError):
        refuse(
            f"is of the ggml type {info.type_number}, which cannot be decoded here",
            "choose a file in Q4_K, Q5_K, Q6_K, Q8_0, F16 or BF16",
        )
    if info.shape[-1] % block:
        refuse(
            f"has rows of {info.shape[-1]} values, not whole blocks of {block} as {type_.name} has",
            "download the file again",
        )
    end = info.offset + prod(info.shape) // block * block_bytes
    if end > header.file_bytes:
        refuse(
            f"ends at byte {end}, the file has {header.file_bytes}: it is cut short",
            "download the file again",
        )
