"""The names of vLLM that a stage uses, with `vllm_attention`, `vllm_norms`, `vllm_loops` and
`vllm_traces`: what a new version moves is repaired here.

Only `vllm_*.py` import this module, and only in a process of vLLM's own environment. Tried with
`VLLM_VERSION`; `tests/runtime/test_vllm_contract.py` names what another version lacks.

Each model of this process believes that it is one rank of a pipeline: `PipelinePlace` stands in for
vLLM's pipeline group and says which layers a call runs. It is of the whole process, so one thread
makes models and runs steps.
"""

import atexit
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_CONFIGURE_LOGGING", "0")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_CPU_CI_ENV", "1")

import torch
import vllm.distributed.parallel_state as parallel_state
import vllm.distributed.utils as distributed_utils
import vllm.model_executor.models.transformers.base as transformers_models
import vllm.model_executor.models.utils as models_utils
from safetensors import safe_open
from torch import Tensor, nn
from vllm.config import CUDAGraphMode, VllmConfig, set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.forward_context import set_forward_context
from vllm.ir import set_default_torch_wrap
from vllm.model_executor.layers.quantization import get_quantization_config
from vllm.model_executor.layers.quantization.compressed_tensors.schemes import (
    CompressedTensorsW8A8Int8,
    CompressedTensorsW8A16Fp8,
    CompressedTensorsWNA16,
)
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)
from vllm.model_executor.model_loader import get_model_loader, register_model_loader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.models.utils import PPMissingLayer
from vllm.platforms import current_platform
from vllm.sequence import IntermediateTensors
from vllm.v1.worker.workspace import (
    current_workspace_manager,
    init_workspace_manager,
    is_workspace_manager_initialized,
)

from runtime.engine import vllm_norms

LOAD_FORMAT = "layer_range"
# MLA reserves scratch memory for as many decodes; a step with more grows it
_MOST_REQUESTS = 256
# what vLLM falls back to where a device has no kernel of its own for a type
SLOW = frozenset({"ChannelWiseTorchFP8ScaledMMLinearKernel", "FLEX_ATTENTION"})


class PipelinePlace:
    """Stands in for vLLM's pipeline group: which layers run, and which ends of the model."""

    def __init__(self, group: Any) -> None:
        self._group = group
        # of two: models made of transformers' modules leave out layers only where there are more
        self.rank_in_group, self.world_size = 0, 2
        self.layers: range | None = None
        self.is_first_rank = self.is_last_rank = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)

    def enter(self, layers: range, *, is_first: bool, is_last: bool) -> None:
        """Before a model is made, and before each forward."""
        self.layers, self.is_first_rank, self.is_last_rank = layers, is_first, is_last


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFiles:
    """The tensors to load, by name, and the file of each.

    `embedding` and `head`: whether these are among them; some families make both on every stage.
    `progress` is called with the bytes read so far, and may raise to stop.
    """

    holders: Mapping[str, Path]
    embedding: bool
    head: bool
    progress: Callable[[int], None]


_weights: WeightFiles | None = None  # of the model that is being made
_sharing: list[Any] = []  # groups of one rank with the process groups of the world


@register_model_loader(LOAD_FORMAT)
class LayerRangeLoader(DefaultModelLoader):
    """Reads the tensors of `WeightFiles`, and no other of the checkpoint."""

    def get_all_weights(self, model_config: Any, model: nn.Module) -> Iterator[tuple[str, Tensor]]:
        if _weights is None:
            raise RuntimeError("load_model sets what to read")
        self.counter_before_loading_weights = time.perf_counter()  # vLLM logs how long it took
        by_file: dict[Path, list[str]] = {}
        for name, path in _weights.holders.items():
            by_file.setdefault(path, []).append(name)
        done_bytes = 0
        for path, names in sorted(by_file.items()):
            with safe_open(path, framework="pt") as file:
                for name in names:
                    tensor = file.get_tensor(name)
                    done_bytes += tensor.nbytes
                    yield name, tensor
                    _weights.progress(done_bytes)

    def track_weights_loading(
        self, model: nn.Module, loaded_weights: set[str] | None, quantized: bool = False
    ) -> None:
        """Raises ValueError for weights that the checkpoint lacks: vLLM does not look at those of
        linear layers unless they are quantised."""
        if loaded_weights is not None and _weights is not None:
            unused = _tables(model, embedding=not _weights.embedding, head=not _weights.head)
            loaded_weights.update(
                f"{name}.{parameter}"
                for name, table in unused.items()
                for parameter, _ in table.named_parameters()
            )
        super().track_weights_loading(model, loaded_weights, quantized=True)


def make_config(
    folder: Path,
    *,
    dtype: str,
    page_tokens: int,
    max_context_tokens: int,
    max_batch_tokens: int,
    ranks: int = 1,
) -> VllmConfig:
    """How vLLM runs the checkpoint at `folder`, its layers shared by `ranks` processes.

    Raises ValueError for what vLLM cannot run.
    """
    config = EngineArgs(
        model=str(folder),
        dtype=dtype,
        model_impl="vllm",
        load_format=LOAD_FORMAT,
        model_loader_extra_config={"enable_weights_track": True},
        block_size=page_tokens,
        max_model_len=max_context_tokens,
        max_num_batched_tokens=max(max_batch_tokens, max_context_tokens),
        max_num_seqs=min(max_batch_tokens, _MOST_REQUESTS),
        enforce_eager=True,
        enable_prefix_caching=False,
        skip_tokenizer_init=True,
        trust_remote_code=False,
        tensor_parallel_size=ranks,
        # whose processes these are: ours, which vLLM need not start
        distributed_executor_backend="uni" if ranks == 1 else "mp",
    ).create_engine_config()
    # otherwise layers with experts are taken in the order of the first step, whichever run later
    config.compilation_config.fast_moe_cold_start = False
    return config


def device_of(config: VllmConfig) -> torch.device:
    return torch.device(config.device_config.device)


def pipeline_place(config: VllmConfig) -> PipelinePlace:
    """The process's place in its pipeline; without `join_ranks` before, its layers are its own."""
    if not isinstance(parallel_state._PP, PipelinePlace):
        meeting = tempfile.mkdtemp(prefix="vllm-stage-")
        atexit.register(shutil.rmtree, meeting, ignore_errors=True)
        join_ranks(config, rank=0, ranks=1, meeting=meeting)
        atexit.register(leave_ranks)
    place: PipelinePlace = parallel_state._PP
    return place


def join_ranks(
    config: VllmConfig, *, rank: int, ranks: int, meeting: str, patience: timedelta | None = None
) -> None:
    """Start vLLM's process groups: this is rank `rank` of those that meet in that folder.

    Raises RuntimeError when they do not all come within `patience`.
    """
    if current_platform.is_cpu():  # vLLM empties an accelerator's cache without asking for one
        from vllm.v1.worker.cpu_model_runner import _set_torch_accelerator_to_noop

        _set_torch_accelerator_to_noop()
        vllm_norms.register()
        for norms in ("rms_norm", "fused_add_rms_norm"):
            getattr(config.kernel_config.ir_op_priority, norms).insert(0, vllm_norms.PROVIDER)
    # as vLLM's worker does; without it every device runs the plain operations
    config.kernel_config.ir_op_priority.set_default()
    set_default_torch_wrap(config.compilation_config.ir_enable_torch_wrap)
    # names the shared memory through which ranks on CPUs add up
    name = os.environ["VLLM_DIST_IDENT"] = Path(meeting).name
    parallel_state.set_custom_all_reduce(not config.parallel_config.disable_custom_all_reduce)
    model = config.model_config
    # one rank sends nothing: NCCL would take memory of its GPU, and hold its process up at the end
    sends_by = "gloo" if ranks == 1 else current_platform.dist_backend
    with set_current_vllm_config(config):
        parallel_state.init_distributed_environment(
            ranks, rank, f"file://{meeting}/group", rank, sends_by, patience
        )
        # without a model vLLM makes the group of experts too, which later models may need
        config.model_config = None
        try:
            parallel_state.initialize_model_parallel(ranks, 1)
        finally:
            config.model_config = model
    if ranks == 1:
        _share_group_of_world()
    device = device_of(config)
    if device.type != "cpu" and not is_workspace_manager_initialized():
        init_workspace_manager(device)  # kernels of experts and MLA ask it for scratch memory
    # all ranks have it in their memory; as a file it would outlast ranks that are killed
    if rank == 0 and sys.platform == "linux":
        for file in Path("/dev/shm").glob(f"{name}-*"):  # noqa: S108 (POSIX shared memory)
            file.unlink()
    place = PipelinePlace(parallel_state._PP)
    parallel_state._PP = place
    whole = distributed_utils.get_pp_indices

    def get_pp_indices(num_hidden_layers: int, pp_rank: int, pp_size: int) -> tuple[int, int]:
        if place.layers is None:
            first, end = whole(num_hidden_layers, pp_rank, pp_size)
            return first, end
        return place.layers.start, place.layers.stop

    distributed_utils.get_pp_indices = get_pp_indices
    transformers_models.get_pp_indices = get_pp_indices  # imported by name


def _share_group_of_world() -> None:
    """Give all of one rank's groups the process groups of the world, and end their own.

    One rank sends nothing, but each of gloo's 14 threads wakes about a hundred times a second.
    """
    world = parallel_state._WORLD
    for made in parallel_state._groups.values():
        group = made()
        if group is not None and group is not world:
            group.destroy()
            group.device_group, group.cpu_group = world.device_group, world.cpu_group
            _sharing.append(group)


def leave_ranks() -> None:
    """End what `join_ranks` started; models that were made meanwhile are of no more use."""
    while _sharing:  # the world's groups end once, with the world
        group = _sharing.pop()
        del group.device_group, group.cpu_group
    parallel_state.destroy_model_parallel()
    parallel_state.destroy_distributed_environment()


def load_model(config: VllmConfig, weights: WeightFiles) -> nn.Module:
    """The model with the layers of the process's place; vLLM packs quantised weights."""
    global _weights
    _weights = weights
    # by id, which a model that was dropped may have had before
    models_utils._model_to_pp_missing_layer_names.clear()
    try:
        with set_current_vllm_config(config):
            loader = get_model_loader(config.load_config)
            model: nn.Module = loader.load_model(
                vllm_config=config, model_config=config.model_config
            )
        return model
    finally:
        _weights = None


def forget_modules(model: nn.Module, config: VllmConfig, modules: Collection[nn.Module]) -> None:
    """Leave nothing of `model` that refers to these and their parts, beside its list of layers."""
    gone = {id(part) for module in modules for part in module.modules()}
    for owner in (model, *model.children()):  # models with experts list those of all layers
        for value in vars(owner).values():
            if isinstance(value, list):
                value[:] = [each for each in value if id(each) not in gone]
    context = config.compilation_config.static_forward_context
    for name in [name for name, module in context.items() if id(module) in gone]:
        del context[name]


def drop_tables(model: nn.Module, *, embedding: bool, head: bool) -> None:
    """Leave nothing of the token table, or of the output head."""
    for name in _tables(model, embedding=embedding, head=head):
        model.set_submodule(name, PPMissingLayer())


def share_tables(model: nn.Module, other: nn.Module) -> None:
    """Have the token table of `other`, the same, in place of that of `model`."""
    theirs = next(iter(_tables(other).values())).weight
    for table in _tables(model).values():
        if table.weight.shape == theirs.shape and table.weight.dtype == theirs.dtype:
            table.weight = theirs


def _tables(
    model: nn.Module, *, embedding: bool = True, head: bool = True
) -> dict[str, VocabParallelEmbedding]:
    """The token table, and the output head, by all their names in the model."""
    return {
        name: module
        for name, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, VocabParallelEmbedding)
        and (head if isinstance(module, ParallelLMHead) else embedding)
    }


def carried_between_stages(model: nn.Module, config: VllmConfig) -> dict[str, Tensor]:
    """One row of what the model hands from one rank of a pipeline to the next, by name."""
    make = getattr(model, "make_empty_intermediate_tensors", None)
    if make is None:
        return {}
    return dict(make(1, config.model_config.dtype, device_of(config)).tensors)


def allow_graphs(config: VllmConfig, sizes: tuple[int, ...]) -> None:
    """Have metadata builders that are made from now on keep what graphs read at fixed addresses."""
    compilation = config.compilation_config
    compilation.cudagraph_mode = CUDAGraphMode.FULL_DECODE_ONLY
    compilation.cudagraph_capture_sizes = list(sizes)
    compilation.max_cudagraph_capture_size = sizes[-1]


def workspace_marks() -> tuple[int, ...]:
    """Where the scratch memory that layers share lies now; it moves when it grows."""
    if not is_workspace_manager_initialized():
        return ()
    spaces = current_workspace_manager()._current_workspaces
    return tuple(0 if space is None else space.data_ptr() for space in spaces)


def forward_context(
    config: VllmConfig,
    *,
    n_tokens: int,
    metadata: dict[str, Any] | None = None,
    slots: dict[str, Tensor] | None = None,
) -> AbstractContextManager[None]:
    """Around a forward of `n_tokens` rows; without metadata attention answers zeros."""
    context: AbstractContextManager[None] = set_forward_context(
        metadata, config, num_tokens=n_tokens, slot_mapping=slots
    )
    return context


def stage_tensors(hidden_RD: Tensor, residual_RD: Tensor | None = None) -> IntermediateTensors:
    """What a model takes from the rank before it; without a residual it is in the rows already.

    A model may write to what it gets.
    """
    residual_RD = torch.zeros_like(hidden_RD) if residual_RD is None else residual_RD.clone()
    return IntermediateTensors({"hidden_states": hidden_RD.clone(), "residual": residual_RD})


def kernel_names(model: nn.Module) -> set[str]:
    """What computes the products of quantised layers, by class."""
    names = set()
    for module in model.modules():
        method = getattr(module, "scheme", None) or getattr(module, "quant_method", None)
        if method is not None and "KVCache" not in type(method).__name__:
            kernel = getattr(method, "kernel", None) or getattr(method, "fp8_linear", None)
            names.add(type(kernel or method).__name__)
    return {name for name in names if not name.startswith("Unquantized")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What vLLM finds on this machine. `platform` is cpu, cuda or rocm; `capability` is a CUDA
    device's, times ten."""

    platform: str
    capability: int | None
    dtypes: tuple[str, ...]
    has_amx: bool


def this_device() -> Device:
    is_cpu, is_cuda = current_platform.is_cpu(), current_platform.is_cuda()
    capability = current_platform.get_device_capability() if is_cuda else None
    dtypes = current_platform.supported_dtypes
    return Device(
        platform="cpu" if is_cpu else ("cuda" if is_cuda else "rocm"),
        capability=None if capability is None else capability.to_int(),
        dtypes=tuple(str(dtype).removeprefix("torch.") for dtype in dtypes),
        has_amx=is_cpu and torch.cpu._is_amx_tile_supported(),
    )


def least_capabilities() -> dict[str, int]:
    """Of CUDA devices, by the kind of stored weights as `runtime.checkpoints.engine_fit` has it.

    FP8 runs below its own kernels with Marlin's, which take the weights alone.
    """
    methods = {
        "awq-4bit": "awq", "gptq-4bit": "gptq", "gptq-8bit": "gptq", "fp8": "fp8",
        "fp8-blocks": "fp8", "mxfp4": "mxfp4",
    }  # fmt: skip
    schemes = {
        "w4a16": CompressedTensorsWNA16, "w8a16-int8": CompressedTensorsWNA16,
        "w8a8-int8": CompressedTensorsW8A8Int8, "w8a8-fp8": CompressedTensorsW8A16Fp8,
        "w8a8-fp8-blocks": CompressedTensorsW8A16Fp8,
    }  # fmt: skip
    least = {kind: get_quantization_config(name) for kind, name in methods.items()}
    least |= {f"compressed-tensors-{kind}": scheme for kind, scheme in schemes.items()}
    return {kind: method.get_min_capability() for kind, method in least.items()}
