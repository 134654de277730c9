"""vLLM's attention backends for GPUs, run on a CPU: their kernels are played by torch.

Everything around the kernels is vLLM's and ours as on a GPU: the metadata builders, the layers, the
layout of the pool, page tables and slots. Each kernel first checks what the real one demands.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm.platforms.cpu import CpuPlatform
from vllm.v1.attention import selector
from vllm.v1.attention.backends import flash_attn, triton_attn
from vllm.v1.attention.backends.registry import AttentionBackendEnum

ALIGNMENT = 16  # bytes: vectors that kernels load, and TMA on Hopper
KERNELS = {
    "TRITON_ATTN": (triton_attn, "unified_attention", "triton_reshape_and_cache_flash"),
    "FLASH_ATTN": (flash_attn, "flash_attn_varlen_func", "reshape_and_cache_flash"),
}
BACKENDS = tuple(KERNELS)


def play(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have models made from now on attend by the backend `name`."""
    path = AttentionBackendEnum[name].get_path()
    monkeypatch.setattr(CpuPlatform, "get_attn_backend_cls", lambda *_, **__: path)
    # vLLM remembers what it chose, and models of later tests would get it
    choose = selector._cached_get_attn_backend.__wrapped__
    monkeypatch.setattr(selector, "_cached_get_attn_backend", choose)
    module, attend, store = KERNELS[name]
    monkeypatch.setattr(module, attend, attend_pages, raising=False)
    monkeypatch.setattr(module, store, store_rows, raising=False)
    monkeypatch.setattr(flash_attn, "get_flash_attn_version", lambda **_: 2)


def store_rows(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    *_: Any,
) -> None:
    """`reshape_and_cache_flash`: rows [T, K, H] to their slots; a slot below 0 is none."""
    _check_pages(key_cache, value_cache)
    assert slot_mapping.dtype == torch.int64
    assert slot_mapping.is_contiguous()
    assert _is_aligned(slot_mapping)
    assert len(slot_mapping) <= len(key)
    page_tokens = key_cache.shape[1]
    real_T = slot_mapping >= 0
    slots_T = slot_mapping[real_T]
    where = (slots_T // page_tokens, slots_T % page_tokens)
    key_cache[where] = key[: len(slot_mapping)][real_T]
    value_cache[where] = value[: len(slot_mapping)][real_T]


def attend_pages(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    cu_seqlens_q: Tensor,
    max_seqlen_q: int,
    seqused_k: Tensor,
    max_seqlen_k: int,
    softmax_scale: float,
    causal: bool,
    window_size: "tuple[int, int] | list[int]",
    block_table: Tensor,
    softcap: float,
    **others: Any,
) -> Tensor:
    """`unified_attention` and `flash_attn_varlen_func`, of rows [T, N, H] over pages."""
    _check_pages(k, v)
    _check_batch(q, k, cu_seqlens_q, max_seqlen_q, seqused_k, max_seqlen_k, block_table)
    assert causal is True
    for request, used in enumerate(seqused_k.tolist()):
        rows = slice(int(cu_seqlens_q[request]), int(cu_seqlens_q[request + 1]))
        count = rows.stop - rows.start
        if count == 0:
            continue
        pages = block_table[request, : -(-used // k.shape[1])].to(torch.int64)
        keys, values = (each[pages].flatten(0, 1)[:used].double() for each in (k, v))
        groups = q.shape[1] // k.shape[2]
        keys, values = (each.repeat_interleave(groups, dim=1) for each in (keys, values))
        scores = torch.einsum("tnh,cnh->ntc", q[rows].double(), keys) * softmax_scale
        if softcap:
            scores = torch.tanh(scores / softcap) * softcap
        at = torch.arange(used - count, used)[:, None]
        context = torch.arange(used)[None]
        hidden = context > at
        if window_size[0] >= 0:
            hidden |= context < at - window_size[0]
        scores = scores.masked_fill(hidden, float("-inf"))
        sinks = others.get("sinks") if others.get("sinks") is not None else others.get("s_aux")
        if sinks is not None:
            column = sinks.double()[:, None, None].expand(-1, count, 1)
            scores = torch.cat([scores, column], dim=-1)
        shares = scores.softmax(-1)[..., :used]
        out[rows] = torch.einsum("ntc,cnh->tnh", shares, values).to(out.dtype).view_as(out[rows])
    return out


def _check_pages(k: Tensor, v: Tensor) -> None:
    """Pages [P, S, K, H] of the pool that all layers share."""
    assert k.shape == v.shape
    assert k.shape[1] % 16 == 0
    for each in (k, v):
        assert each.stride(-1) == 1
        assert _is_aligned(each)
        strides = [each.stride(axis) * each.element_size() for axis in range(3)]
        assert all(stride % ALIGNMENT == 0 for stride in strides), strides


def _check_batch(
    q: Tensor,
    k: Tensor,
    starts: Tensor,
    most_rows: int,
    ends: Tensor,
    most_tokens: int,
    table: Tensor,
) -> None:
    for each in (starts, ends, table):
        assert each.dtype == torch.int32
        assert each.is_contiguous() or each is table
        assert _is_aligned(each)
    assert table.stride(-1) == 1
    assert table.stride(0) % ALIGNMENT == 0, "Triton compiles again for each kind of stride"
    assert len(table) == len(ends) == len(starts) - 1
    assert starts[0] == 0
    assert starts[-1] <= len(q)
    counts = starts.diff()
    assert counts.max() <= most_rows
    assert ends.max() <= most_tokens
    assert (counts <= ends).all()
    assert table.shape[1] * k.shape[1] >= ends.max()
    assert ((table >= 0) & (table < len(k))).all()
    assert q.stride(-1) == 1
    assert q.shape[1] % k.shape[2] == 0


def _is_aligned(tensor: Tensor) -> bool:
    return tensor.data_ptr() % ALIGNMENT == 0


def builder_calls(model: Any, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The builders of `model` whose `build` is called, in order, from now on."""
    seen: list[object] = []

    def count(builder: Any, build: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            seen.append(builder)
            return build(*args, **kwargs)

        return counted

    for kind in model._kinds:
        monkeypatch.setattr(kind.builder, "build", count(kind.builder, kind.builder.build))
    return seen
