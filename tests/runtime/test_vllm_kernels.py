"""What vLLM's kernels for GPUs demand, checked without one; see `vllm_kernels`.

Runs in vLLM's environment only (`make test-vllm`).
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from device_crossings import META, Crossings
from engine_under_test import IS_VLLM, PAGE_TOKENS, backend_of, no_progress
from family_checkpoints import LAYERS, save
from stage_cluster import GREEDY
from test_families import check_equal
from torch import Tensor

if not IS_VLLM:
    pytest.skip("runs in vLLM's environment: make test-vllm", allow_module_level=True)

from vllm.config import set_current_vllm_config
from vllm.forward_context import get_forward_context
from vllm.platforms.interface import DeviceCapability
from vllm.sequence import IntermediateTensors
from vllm.v1.attention.backends.registry import AttentionBackendEnum
from vllm_families import VLLM_FAMILIES
from vllm_kernels import BACKENDS, builder_calls, play

from runtime.checkpoints.model_facts import read_sizes
from runtime.engine import vllm_compat, vllm_loading, vllm_model
from runtime.engine.host_memory import HostMemory
from runtime.engine.limits import EngineLimits
from runtime.engine.sequence import Chunk, RequestKey, Sequence, Work
from runtime.engine.vllm_attention import RaggedBatch
from runtime.engine.vllm_graphs import DecodeGraphs, graph_sizes
from runtime.engine.vllm_loading import check_layers
from runtime.engine.vllm_runner import VllmRunner
from runtime.protocol.data import Hop, Route

T4, L4, A100, H100, B200 = (
    DeviceCapability(*each) for each in ((7, 5), (8, 9), (8, 0), (9, 0), (10, 0))
)
TO_DEVICE, TO_HOST = "to the device", "to the host"


@pytest.mark.parametrize("name", ["Llama", "Gemma 3", "gpt-oss"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_backends_of_gpus_get_what_they_demand_and_the_tokens_are_those_of_transformers(
    backend: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (backend, name) == ("FLASH_ATTN", "gpt-oss"):
        pytest.skip("FlashAttention 2 has no sinks: vLLM takes FlashAttention 3 or Triton")
    play(backend, monkeypatch)
    check_equal(VLLM_FAMILIES[name], tmp_path, seed=0, max_tokens=8)


def refusals(
    backend: str,
    capability: DeviceCapability,
    *,
    dtype: torch.dtype = torch.bfloat16,
    head_size: int = 128,
    page_tokens: int = 16,
    use_mla: bool = False,
    has_sink: bool = False,
) -> list[str]:
    """Why vLLM would not take `backend` there; empty: it would."""
    reasons: list[str] = (
        AttentionBackendEnum[backend]
        .get_class()
        .validate_configuration(
            head_size=head_size,
            dtype=dtype,
            kv_cache_dtype="auto",
            block_size=page_tokens,
            use_mla=use_mla,
            has_sink=has_sink,
            use_sparse=False,
            use_mm_prefix=False,
            use_per_head_quant_scales=False,
            device_capability=capability,
            attn_type="decoder",
        )
    )
    return reasons


@pytest.mark.parametrize("head_size", [64, 80, 96, 128, 256])
def test_pages_of_sixteen_tokens_suit_the_backends_that_we_let_vllm_choose(head_size: int) -> None:
    for capability in (A100, L4, H100, B200):
        for dtype in (torch.bfloat16, torch.float16):
            assert not refusals("FLASH_ATTN", capability, dtype=dtype, head_size=head_size)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert not refusals("TRITON_ATTN", T4, dtype=dtype, head_size=head_size)
    assert not refusals("TRITON_ATTN", T4, has_sink=True)
    assert not refusals("TRITON_MLA", A100, head_size=576, use_mla=True)


@pytest.mark.parametrize(
    ("backend", "capability", "other", "reason"),
    [
        ("FLASH_ATTN", T4, {}, "compute capability"),
        ("FLASH_ATTN", A100, {"dtype": torch.float32}, "dtype"),
        ("FLASH_ATTN", A100, {"page_tokens": 8}, "block_size"),
        ("TRITON_ATTN", A100, {"page_tokens": 8}, "block_size"),
        ("TRITON_ATTN", A100, {"head_size": 16}, "head_size"),
        ("FLASHMLA", A100, {"head_size": 576, "use_mla": True, "page_tokens": 64}, "capability"),
        ("FLASHMLA", H100, {"head_size": 576, "use_mla": True}, "block_size"),
    ],
)
def test_what_a_backend_cannot_do_is_known_before(
    backend: str, capability: DeviceCapability, other: dict[str, Any], reason: str
) -> None:
    assert any(reason in each for each in refusals(backend, capability, **other))


def test_flashmla_and_triton_mla_differ_between_layers_in_the_parts_that_we_change() -> None:
    """Of MLA's metadata pages are in `decode` and `prefill`; see `vllm_attention.with_pages`."""
    from dataclasses import fields

    from vllm.model_executor.layers.attention.mla_attention import (
        MLACommonDecodeMetadata,
        MLACommonMetadata,
        MLACommonPrefillMetadata,
    )
    from vllm.v1.attention.backends.mla.flashmla import FlashMLADecodeMetadata

    def with_table(kind: Any) -> bool:
        return "block_table" in {field.name for field in fields(kind)}

    assert not with_table(MLACommonMetadata)
    assert all(
        with_table(each)
        for each in (MLACommonDecodeMetadata, MLACommonPrefillMetadata, FlashMLADecodeMetadata)
    )
    assert {"slot_mapping", "num_decodes"} <= {field.name for field in fields(MLACommonMetadata)}


class _MetaModel:
    """Stands in for a model whose numbers are on a device: touches what each layer is handed."""

    def __init__(self, model: Any, hidden_size: int, vocab_size: int) -> None:
        self._inner = model._loop._inner
        self._names = {layer: name for kind in model._kinds for layer, name in kind.names.items()}
        self._sizes = hidden_size, vocab_size
        self.tables: list[Tensor] = []

    def __call__(self, token_ids: Tensor | None, positions: Tensor, tensors: Any) -> Any:
        if tensors is None:
            assert token_ids is not None
            rows = torch.empty(len(token_ids), self._sizes[0], device=META)
            return IntermediateTensors({"hidden_states": rows, "residual": torch.zeros_like(rows)})
        context = get_forward_context()
        for layer in range(self._inner.start_layer, self._inner.end_layer):
            metadata = context.attn_metadata[self._names[layer]]
            slots = context.slot_mapping[self._names[layer]]
            assert metadata.slot_mapping is slots
            assert {each.device for each in (slots, metadata.seq_lens, positions)} == {META}
            self.tables.append(metadata.block_table)
        return tensors

    def compute_logits(self, hidden: Any) -> Tensor:
        return torch.empty(len(hidden["hidden_states"]), self._sizes[1], device=META)


@pytest.fixture(scope="module")
def on_meta(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A runner of vLLM's, as on a GPU but for the numbers, and its backend."""
    folder = tmp_path_factory.mktemp("meta")
    save(VLLM_FAMILIES["Gemma 3"], folder, seed=0)
    sizes = read_sizes(folder)
    limits = EngineLimits(page_tokens=PAGE_TOKENS, max_batch_tokens=64, max_context_tokens=256)
    with pytest.MonkeyPatch.context() as monkeypatch:
        play("TRITON_ATTN", monkeypatch)
        opened = check_layers(folder, sizes, range(LAYERS), limits=limits).read(no_progress)
    model = opened.model
    with set_current_vllm_config(model._config):
        for kind in model._kinds:
            make = type(kind.builder)
            kind.builder = make(
                kind.builder.kv_cache_spec, kind.builder.layer_names, model._config, META
            )
    stand_in = model._model = _MetaModel(model, sizes.hidden_size, sizes.vocab_size)
    model.device = META
    runner = opened.runner(pages=400)
    assert isinstance(runner, VllmRunner)
    runner.host = HostMemory(META, pinned=None)
    return SimpleNamespace(
        model=model, stand_in=stand_in, runner=runner, backend=backend_of(runner, folder)
    )


def step_of(runner: Any, spans: list[tuple[int, int, int]]) -> list[Work]:
    """Requests of (first layer, tokens before, tokens now), with pages that they just got."""
    step = []
    for number, (first, position, n_tokens) in enumerate(spans):
        hop = Hop(node="here", first=first, end=LAYERS)
        sequence = Sequence(
            key=RequestKey(request=number, epoch=1),
            generation=1,
            route=Route(hops=(hop,), sampling=GREEDY, prompt_tokens=1),
            hop=0,
            arrival=number,
        )
        size = 4 if first == 0 else 4 * runner.shape.hidden_size
        chunk = Chunk(
            position=position,
            n_tokens=n_tokens,
            payload=memoryview(bytes(size * n_tokens)),
            is_sampled=True,
            arrival=0,
        )
        runner.cache.kv_manager.reserve(sequence.table, tokens=chunk.end)
        step.append(Work(sequence=sequence, chunk=chunk))
    return step


@pytest.mark.parametrize(
    ("spans", "stretches"),
    [
        ([(0, 40, 1), (0, 3, 1), (0, 15, 1)], 1),
        ([(0, 40, 1), (2, 3, 1), (4, 15, 1)], 3),
        ([(1, 40, 1), (1, 3, 1)], 1),
    ],
)
def test_a_decode_step_has_one_copy_there_and_one_back_and_few_metadata(
    on_meta: Any,
    spans: list[tuple[int, int, int]],
    stretches: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = step_of(on_meta.runner, spans)
    built = builder_calls(on_meta.model, monkeypatch)
    with Crossings() as crossings:
        result = on_meta.backend.run(step)
    assert [where for where, _ in crossings.seen] == [TO_DEVICE, TO_HOST], crossings.seen
    assert len(result.drawn) == len(step)
    # at most one for each kind of layers in each stretch: full attention, and windows
    assert len(built) <= stretches * len(on_meta.model._kinds)
    for work in step:
        on_meta.backend.kv_manager.release(work.sequence.table)


def test_a_recorded_step_has_no_more_copies(on_meta: Any) -> None:
    """Two steps, of which the first records the embedding and the layers."""
    recorded: list[Callable[[], Tensor]] = []

    def record(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
        recorded.append(run)
        return run

    limits = EngineLimits(page_tokens=PAGE_TOKENS, max_batch_tokens=64, max_context_tokens=256)
    assert on_meta.model.record_decodes(record, limits=limits)
    for _ in range(2):
        step = step_of(on_meta.runner, [(0, 40, 1), (0, 3, 1), (0, 15, 1)])
        with Crossings() as crossings:
            on_meta.backend.run(step)
        assert [where for where, _ in crossings.seen] == [TO_DEVICE, TO_HOST], crossings.seen
        for work in step:
            on_meta.backend.kv_manager.release(work.sequence.table)
    on_meta.model._graphs = on_meta.model._embedding_graphs = None
    assert len(recorded) == 2


def test_a_step_of_prompts_has_no_more_copies(on_meta: Any) -> None:
    step = step_of(on_meta.runner, [(0, 40, 1), (0, 16, 24), (2, 0, 20)])
    on_meta.stand_in.tables.clear()
    with Crossings() as crossings:
        on_meta.backend.run(step)
    # the rows that are sampled are not adjoining, so their places are sent
    assert [where for where, _ in crossings.seen] == [TO_DEVICE, TO_DEVICE, TO_HOST]
    assert {tuple(table.shape) for table in on_meta.stand_in.tables} == {(2, 16), (3, 16)}
    storages = {table.untyped_storage()._cdata for table in on_meta.stand_in.tables}
    assert len(storages) == 1, "tables of all layers are views of what was sent at once"
    for work in step:
        on_meta.backend.kv_manager.release(work.sequence.table)


@pytest.mark.parametrize("name", ["Llama", "Gemma 3"])
def test_decodes_as_graphs_give_the_same_tokens_from_buffers_that_stay(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph is played by running the recorded function again on the same buffers: any number of
    the step that it was recorded in, instead of a buffer's, would show in the tokens."""
    recorded, replayed = [], []

    def record(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
        left_SD = run()
        recorded.append(len(left_SD))

        def replay() -> Tensor:
            replayed.append(len(left_SD))
            return left_SD.copy_(run())

        return replay

    play("TRITON_ATTN", monkeypatch)
    monkeypatch.setattr(vllm_loading, "check_layers", partial(check_layers, record=record))
    check_equal(VLLM_FAMILIES[name], tmp_path, seed=0, max_tokens=8)
    assert set(recorded) <= set(graph_sizes(16))
    assert len(replayed) > 3 * len(recorded) > 0


def test_without_memory_to_record_steps_run_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def record(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
        tried.append(run)
        raise torch.OutOfMemoryError

    play("TRITON_ATTN", monkeypatch)
    monkeypatch.setattr(vllm_loading, "check_layers", partial(check_layers, record=record))
    check_equal(VLLM_FAMILIES["Llama"], tmp_path, seed=0, max_tokens=8)
    assert tried


def test_graphs_are_recorded_again_when_the_pool_or_scratch_memory_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded: list[int] = []
    renewed: list[int] = []

    def doubled(batch: Any, tables: Tensor, slots: Tensor) -> Any:
        renew = partial(renewed.append, len(batch.host_ends))
        return lambda hidden, positions: hidden * 2, renew

    def record(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
        recorded.append(len(run()))
        return run

    graphs = DecodeGraphs(
        doubled,
        n_layers=2,
        row=torch.zeros(1, 4),
        sizes=(1, 2, 4),
        max_context_tokens=64,
        width=16,
        record=record,
    )

    def run(rows: int) -> list[float]:
        batch = RaggedBatch(
            starts=torch.arange(rows + 1),
            ends=torch.full((rows,), 9),
            positions=torch.full((rows,), 8),
            host_starts=np.arange(rows + 1, dtype=np.int32),
            host_ends=np.full(rows, 9, dtype=np.int32),
        )
        assert graphs.can_run(batch)
        hidden = torch.arange(rows, dtype=torch.float32)[:, None].expand(-1, 4)
        tables, slots = torch.ones(2, rows, 16), torch.ones(2, rows)
        left: list[float] = graphs.run(hidden, batch, tables, slots)[:, 0].tolist()
        return left

    assert [run(rows) for rows in (3, 1, 4)] == [[0, 2, 4], [0], [0, 2, 4, 6]]
    assert recorded == [4, 1]
    assert renewed == [4, 1, 4], "before each step, for the size that it is padded to"
    graphs.forget()
    run(3)
    monkeypatch.setattr(vllm_compat, "workspace_marks", lambda: (7,))
    run(3)
    run(4)
    assert recorded == [4, 1, 4, 4]


def test_the_largest_step_runs_all_layers_and_the_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as on a GPU, where layers run as modules
    monkeypatch.setattr(vllm_model, "trace_layers", lambda *_: None)
    save(VLLM_FAMILIES["Llama"], tmp_path, seed=0)
    sizes = read_sizes(tmp_path)
    limits = EngineLimits(page_tokens=PAGE_TOKENS, max_batch_tokens=64, max_context_tokens=256)
    opened = check_layers(tmp_path, sizes, range(LAYERS), limits=limits).read(no_progress)
    ran: list[str] = []
    for name, module in opened.model._model.named_modules():
        module.register_forward_hook(lambda *_, name=name: ran.append(name))
    logits: list[tuple[int, ...]] = []
    compute = opened.model._model.compute_logits
    opened.model._model.compute_logits = lambda rows: (
        logits.append(tuple(rows.shape)) or compute(rows)
    )
    opened.model.run_largest(64)
    assert {f"model.layers.{layer}.mlp" for layer in range(LAYERS)} <= set(ran)
    assert logits == [(64, sizes.hidden_size)]
