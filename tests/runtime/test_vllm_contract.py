"""What a stage needs of vLLM, name by name: a new version fails here with the name that moved."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from engine_under_test import IS_VLLM

from runtime.engine.choosing import require_vllm

pytestmark = pytest.mark.skipif(not IS_VLLM, reason="runs in vLLM's environment: make test-vllm")


def parameters(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters)


def test_the_environment_has_the_version_that_is_pinned() -> None:
    require_vllm()


def test_calls_take_what_they_are_given() -> None:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.forward_context import set_forward_context
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader
    from vllm.v1.attention.backend import AttentionMetadataBuilder
    from vllm.v1.kv_cache_interface import create_kv_cache_views

    assert {
        "model", "dtype", "model_impl", "load_format", "block_size", "max_model_len",
        "max_num_batched_tokens", "max_num_seqs", "enforce_eager", "enable_prefix_caching",
        "skip_tokenizer_init", "trust_remote_code",
    } <= parameters(EngineArgs)  # fmt: skip
    assert {"num_tokens", "slot_mapping"} <= parameters(set_forward_context)
    assert {"vllm_config", "model_config"} <= parameters(BaseModelLoader.load_model)
    assert {"common_prefix_len", "common_attn_metadata"} <= parameters(
        AttentionMetadataBuilder.build
    )
    assert len(parameters(create_kv_cache_views)) >= 5


def test_records_have_the_fields_that_are_filled() -> None:
    from vllm.v1.attention.backend import CommonAttentionMetadata
    from vllm.v1.kv_cache_interface import KVCacheTensor

    fields = {field.name for field in dataclasses.fields(CommonAttentionMetadata)}
    assert {
        "query_start_loc", "query_start_loc_cpu", "seq_lens", "seq_lens_cpu_upper_bound",
        "num_reqs", "num_actual_tokens", "max_query_len", "max_seq_len", "block_table_tensor",
        "slot_mapping", "positions", "is_prefilling", "causal",
    } <= fields  # fmt: skip
    assert {"size", "layers", "layer_stride", "block_stride"} <= parameters(KVCacheTensor)


def test_what_is_replaced_is_there() -> None:
    import vllm.distributed.parallel_state as parallel_state
    import vllm.distributed.utils as distributed_utils
    from vllm.config import CompilationConfig
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    assert hasattr(parallel_state, "_PP")
    assert {"num_hidden_layers", "pp_rank", "pp_size"} == parameters(
        distributed_utils.get_pp_indices
    )
    assert hasattr(DefaultModelLoader, "get_all_weights")
    fields = {field.name for field in dataclasses.fields(CompilationConfig)}
    assert {"fast_moe_cold_start", "static_forward_context"} <= fields
