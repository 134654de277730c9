"""Attention layers of vLLM's models: their pages, and the metadata of a step.

Names of vLLM that move between versions, as in `vllm_compat`.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from runtime.engine.vllm_compat import device_of  # and what vLLM reads when it is imported

# isort: split
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.v1.attention.backend import AttentionCGSupport, CommonAttentionMetadata
from vllm.v1.kv_cache_interface import KVCacheTensor, SlidingWindowSpec, create_kv_cache_views

# attention whose metadata may be made for all layers of a step before any of them runs; that of
# FlashInfer and FlexAttention keeps its page tables in buffers that all layers share
LAYERWISE = frozenset(
    {"CPU_ATTN", "FLASH_ATTN", "TRITON_ATTN", "CPU_MLA", "TRITON_MLA", "FLASH_ATTN_MLA", "FLASHMLA"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLayer:
    """A module with a KV cache, by its name in the model."""

    name: str
    module: Any
    spec: Any

    @property
    def page_bytes(self) -> int:
        return int(self.spec.page_size_bytes)

    @property
    def page_tokens(self) -> int:
        return int(self.spec.block_size)

    @property
    def backend_name(self) -> str:
        return str(self.module.get_attn_backend().get_name())

    @property
    def kind(self) -> object:
        """Layers of one kind share their metadata but for the pages."""
        return self.module.get_attn_backend().full_cls_name(), self.spec


def attention_layers(config: VllmConfig) -> list[AttentionLayer]:
    """Of the models that were made with `config`."""
    found = []
    for name, module in config.compilation_config.static_forward_context.items():
        if isinstance(module, AttentionLayerBase):
            spec = module.get_kv_cache_spec(config)
            if isinstance(spec, SlidingWindowSpec):
                # vLLM would give these layers larger pages; its kernels take ours
                spec = replace(spec, block_size=config.cache_config.block_size)
            if spec is not None:
                found.append(AttentionLayer(name=name, module=module, spec=spec))
    return found


def bind_pool(layers: list[AttentionLayer], config: VllmConfig, pool_B: Tensor, pages: int) -> None:
    """Give each layer the whole pool of `pages` pages, bytes [B], as its KV cache."""
    if config.cache_config.kv_cache_layout is None:
        layouts = layers[0].module.get_attn_backend().supported_kv_cache_layouts()
        config.cache_config.kv_cache_layout = layouts[0].name if layouts else "LBNHC"
    layout = config.cache_config.get_resolved_kv_cache_layout()
    for layer in layers:
        placed = KVCacheTensor(
            size=pool_B.numel(),
            layers=[layer.name],
            layer_stride=layer.page_bytes,
            block_stride=layer.page_bytes,
        )
        layer.module.bind_kv_cache(
            create_kv_cache_views(pool_B, layer.spec, pages, layout, placed)[0]
        )


def unbind_pool(layers: list[AttentionLayer]) -> None:
    """Drop the references to the pool, so that its memory can be freed."""
    for layer in layers:
        layer.module.bind_kv_cache(torch.empty(0))


def metadata_builder(layers: list[AttentionLayer], config: VllmConfig) -> Any:
    """Makes the metadata of `layers`, which are of one kind."""
    make = layers[0].module.get_attn_backend().get_builder_cls()
    with set_current_vllm_config(config):
        return make(layers[0].spec, [layer.name for layer in layers], config, device_of(config))


@dataclass(frozen=True, slots=True, kw_only=True)
class RaggedBatch:
    """Rows of R requests, one after another, as vLLM's builders of attention metadata take them.

    On the device: `starts` [R + 1] and `ends` [R], int32, `positions` [T]. The same on the host as
    `host_starts` and `host_ends`. `ends` are the tokens of each request so far, these included.
    """

    starts: Tensor
    ends: Tensor
    positions: Tensor
    host_starts: NDArray[np.int32]
    host_ends: NDArray[np.int32]

    def common(self, table_RW: Tensor, slots_T: Tensor) -> CommonAttentionMetadata:
        """For one layer, whose pages are `table_RW` and whose rows are written to `slots_T`."""
        counts = np.diff(self.host_starts)
        return CommonAttentionMetadata(
            query_start_loc=self.starts,
            query_start_loc_cpu=torch.from_numpy(self.host_starts),
            seq_lens=self.ends,
            seq_lens_cpu_upper_bound=torch.from_numpy(self.host_ends),
            num_reqs=len(counts),
            num_actual_tokens=int(self.host_starts[-1]),
            max_query_len=int(counts.max()),
            max_seq_len=int(self.host_ends.max()),
            block_table_tensor=table_RW,
            slot_mapping=slots_T,
            positions=self.positions,
            is_prefilling=torch.from_numpy(counts > 1),
            causal=True,
        )


def build_metadata(builder: Any, common: CommonAttentionMetadata) -> Any:
    return builder.build(0, common)


def build_for_graph(builder: Any, common: CommonAttentionMetadata) -> Any:
    """As `build_metadata`, for what is recorded; may write to what `common` has on the device."""
    return builder.build_for_cudagraph_capture(common)


def can_be_in_graphs(builder: Any) -> bool:
    """True if steps with one row of each request may be recorded with its metadata."""
    support = builder.get_cudagraph_support(builder.vllm_config, builder.kv_cache_spec)
    return bool(support.value >= AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE.value)


def with_pages(builder: Any, built: Any, table_RW: Tensor, slots_T: Tensor) -> Any:
    """`built` for another layer of the same kind, which has pages of its own."""
    if builder.supports_update_block_table:
        return builder.update_block_table(built, table_RW, slots_T)
    other = copy.copy(built)
    other.slot_mapping = slots_T
    if hasattr(built, "block_table"):
        # of layers that attend within chunks: each chunk is a request to the kernel
        of_chunks = getattr(built, "make_virtual_batches_block_table", None)
        other.block_table = table_RW if of_chunks is None else of_chunks(table_RW)
        return other
    # MLA: decodes come first, and either part has the pages of its requests
    n_decodes = built.num_decodes
    for name, pages in (("decode", table_RW[:n_decodes]), ("prefill", table_RW[n_decodes:])):
        part = copy.copy(getattr(built, name))
        if part is not None:
            part.block_table = pages
            setattr(other, name, part)
    return other


@contextmanager
def without_attention(layer: AttentionLayer) -> Iterator[None]:
    """While the layer attends to nothing: it answers zeros, and writes no keys and values."""
    module = layer.module

    def zeros(query: Tensor, *_: Any, output_shape: Any = None, **__: Any) -> Tensor:
        width = module.num_heads * getattr(module, "head_size_v", module.head_size)
        return query.new_zeros(output_shape or (len(query), width))

    module.forward = zeros
    try:
        yield
    finally:
        del module.forward
