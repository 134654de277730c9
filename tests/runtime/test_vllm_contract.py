"""What a stage needs of vLLM, name by name: a new version fails here with the name that moved."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from engine_under_test import IS_VLLM

from runtime.checkpoints.engine_fit import KINDS
from runtime.engine.choosing import require_vllm

pytestmark = pytest.mark.skipif(not IS_VLLM, reason="runs in vLLM's environment: make test-vllm")


def parameters(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters)


def test_the_environment_has_the_version_that_is_pinned() -> None:
    require_vllm()


def test_calls_take_what_they_are_given() -> None:
    import vllm.distributed.parallel_state as parallel_state
    from vllm.engine.arg_utils import EngineArgs
    from vllm.forward_context import set_forward_context
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader
    from vllm.v1.attention.backend import AttentionMetadataBuilder
    from vllm.v1.kv_cache_interface import create_kv_cache_views

    assert {
        "model", "dtype", "model_impl", "load_format", "block_size", "max_model_len",
        "max_num_batched_tokens", "max_num_seqs", "enforce_eager", "enable_prefix_caching",
        "skip_tokenizer_init", "trust_remote_code", "tensor_parallel_size",
        "distributed_executor_backend",
    } <= parameters(EngineArgs)  # fmt: skip
    assert {"num_tokens", "slot_mapping"} <= parameters(set_forward_context)
    assert {"vllm_config", "model_config"} <= parameters(BaseModelLoader.load_model)
    assert {"common_prefix_len", "common_attn_metadata"} <= parameters(
        AttentionMetadataBuilder.build
    )
    assert len(parameters(create_kv_cache_views)) >= 5
    assert [*inspect.signature(parallel_state.init_distributed_environment).parameters] == [
        "world_size", "rank", "distributed_init_method", "local_rank", "backend", "timeout",
    ]  # fmt: skip
    assert {"tensor_model_parallel_size", "pipeline_model_parallel_size"} <= parameters(
        parallel_state.initialize_model_parallel
    )


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

    for name in (
        "_PP", "set_custom_all_reduce", "destroy_model_parallel",
        "destroy_distributed_environment",
    ):  # fmt: skip
        assert hasattr(parallel_state, name), name
    assert {"num_hidden_layers", "pp_rank", "pp_size"} == parameters(
        distributed_utils.get_pp_indices
    )
    assert hasattr(DefaultModelLoader, "get_all_weights")
    fields = {field.name for field in dataclasses.fields(CompilationConfig)}
    assert {"fast_moe_cold_start", "static_forward_context"} <= fields


def test_norms_on_cpus_are_computed_by_kernels() -> None:
    import torch
    from vllm.ir import ops
    from vllm.platforms import current_platform

    from runtime.engine import vllm_norms

    if not current_platform.is_cpu():
        pytest.skip("vLLM chooses the kernels of this platform itself")
    vllm_norms.register()
    dice = torch.Generator().manual_seed(3)
    rows_TD, residual_TD = torch.randn(2, 5, 64, generator=dice)
    weight_D = torch.randn(64, generator=dice)
    for norm, arguments in (
        (ops.rms_norm, (rows_TD, weight_D, 1e-5)),
        (ops.fused_add_rms_norm, (rows_TD, residual_TD, weight_D, 1e-5)),
    ):
        with norm.set_priority([vllm_norms.PROVIDER, "native"]):
            assert norm.dispatch(*arguments) is norm.impls[vllm_norms.PROVIDER]
            found = norm(*arguments)
        torch.testing.assert_close(found, norm.impls["native"].impl_fn(*arguments))


def test_what_a_node_announces_can_be_asked() -> None:
    from runtime.engine.vllm_compat import least_capabilities, this_device

    assert least_capabilities().keys() == set(KINDS)
    device = this_device()
    assert device.platform in ("cpu", "cuda", "rocm")
    assert "float32" in device.dtypes


def test_models_of_transformers_modules_leave_out_layers() -> None:
    import vllm.model_executor.models.transformers.base as base

    assert callable(base.get_pp_indices)
    assert "world_size" in inspect.getsource(base.Base.pipeline_parallel)
    assert {"positions", "intermediate_tensors"} <= parameters(base.Base.forward)
