"""Makes the backend of a launch with vLLM's model code, in a process of vLLM's own environment."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import ValidationError

from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.fetching import Tell
from runtime.checkpoints.layer_names import is_wanted
from runtime.checkpoints.safetensors_header import read_entries
from runtime.checkpoints.tensor_holders import tensor_holders
from runtime.engine import vllm_compat as compat
from runtime.engine.backend import CannotRun, Opened
from runtime.engine.compute_dtype import compute_dtype, wire_dtype
from runtime.engine.fitting import check_plan, engine_text, fit, source_of_weights
from runtime.engine.grammar import Grammars
from runtime.engine.kv_cache import page_bytes
from runtime.engine.largest_step import CudaMemory, pages_beside_step
from runtime.engine.limits import EngineLimits
from runtime.engine.memory import BudgetTooSmall, pages_in_free_memory
from runtime.engine.model_backend import ModelBackend
from runtime.engine.step_runner import RunnerShape
from runtime.engine.vllm_cache import VllmCache
from runtime.engine.vllm_graphs import Record, cuda_recorder, graph_sizes
from runtime.engine.vllm_model import VllmModel
from runtime.engine.vllm_runner import VllmRunner
from runtime.models.free_memory import free_bytes, require_memory
from runtime.models.model_config import DTYPES
from runtime.protocol.engines import VLLM_VERSION
from runtime.protocol.stage_pipe import StageLaunch

logger = logging.getLogger(__name__)

_PAGE_MULTIPLE = 16
Progress = Callable[[int, int], None]


def open_vllm(
    launch: StageLaunch,
    *,
    progress: Progress,
    tell_fetch: Tell = lambda _: None,
    reason: str = "",
) -> Opened:
    """The layers of the assignment's checkpoint, in memory.

    `progress` gets bytes read so far and in all, and may raise to stop; `tell_fetch` how far a
    fetch is; `reason` why vLLM was chosen. Raises CannotRun and OSError for what the person who
    deployed can repair.
    """
    torch.set_num_threads(launch.threads)
    try:
        return _open(launch, progress, tell_fetch, reason)
    except (CheckpointError, BudgetTooSmall) as error:
        raise CannotRun(str(error)) from error
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise CannotRun(f"out of memory ({error}); lower the node's memory budget") from error


def _open(launch: StageLaunch, progress: Progress, tell_fetch: Tell, reason: str) -> Opened:
    assignment = launch.assignment
    layers = range(assignment.first, assignment.end)
    if assignment.tensor_parallel > 1:
        raise CannotRun(
            f"{assignment.tensor_parallel} ranks are asked for; with vLLM a stage has one: deploy "
            "without tensor parallelism, or with the engine helix"
        )
    source = source_of_weights(launch, tell_fetch)
    stored = source.sizes()
    check_plan(assignment, stored)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sizes = stored.computed_in(
        compute_dtype(launch.engine.compute_dtype, stored.dtype_name, device)
    )
    limits, pages = fit(sizes, assignment, memory_budget_bytes=launch.memory_budget_bytes)
    read_bytes = sizes.weights_bytes(layers.start, layers.stop)
    progress = source.fetch(
        lambda names: wanted_names(names, sizes, layers), read_bytes=read_bytes, progress=progress
    )
    record = (
        cuda_recorder(device) if launch.engine.decode_graphs and device.type == "cuda" else None
    )
    opened = open_layers(
        source.folder, sizes, layers, limits=limits, progress=progress, record=record
    )
    model, one_page = opened.model, page_bytes(sizes, page_tokens=limits.page_tokens)
    if device.type == "cuda":
        pages = pages_beside_step(
            model.run_largest,
            CudaMemory(model.device),
            limits,
            budget_bytes=launch.memory_budget_bytes,
            page_bytes=one_page,
            n_layers=len(layers),
        )
    else:
        free = free_bytes(model.device)
        pages = min(pages, pages_in_free_memory(sizes, limits, free_bytes=free, ranges=[layers]))
    runner = opened.runner(
        pages=pages,
        most_pages=launch.memory_budget_bytes // one_page,
        wire_dtype=wire_dtype(assignment, stored),
    )
    engine = (
        f"vLLM {VLLM_VERSION} on {opened.model.device} in {sizes.dtype_name} "
        f"({', '.join(opened.model.paths)})"
    )
    return Opened(
        backend=ModelBackend(
            runner,
            grammars=Grammars(source.folder, vocab_size=sizes.vocab_size),
            engine=engine_text(engine, reason),
        ),
        limits=limits,
        device=engine,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmLayers:
    """Layers in memory, before they have a KV cache."""

    model: VllmModel
    sizes: DecoderSizes

    def runner(
        self, *, pages: int, most_pages: int = 0, wire_dtype: torch.dtype | None = None
    ) -> VllmRunner:
        """Runs the layers with a cache of `pages` pages. `wire_dtype`: that of rows that come and
        go; None: as computed."""
        model, sizes = self.model, self.sizes
        cache = VllmCache(
            [model],
            pages=pages,
            page_bytes=model.page_bytes,
            page_tokens=model.page_tokens,
            device=model.device,
            most_pages=most_pages,
        )
        shape = RunnerShape(
            num_layers=sizes.num_layers,
            hidden_size=sizes.hidden_size,
            vocab_size=sizes.vocab_size,
            dtype=DTYPES[sizes.dtype_name],
            wire_dtype=wire_dtype or DTYPES[sizes.dtype_name],
        )
        weights_bytes = sizes.weights_bytes_of(model.layers)
        return VllmRunner(model, cache, shape=shape, weights_bytes=weights_bytes)


def open_layers(
    checkpoint: Path,
    sizes: DecoderSizes,
    layers: range,
    *,
    limits: EngineLimits,
    progress: Progress,
    record: Record | None = None,
) -> VllmLayers:
    """Read `layers` of a folder in safetensors, computed in the type that `sizes` has.

    `record` makes graphs of decode steps; None: every step runs as it is. Raises CheckpointError,
    and CannotRun for what vLLM cannot run as a stage.
    """
    if limits.page_tokens % _PAGE_MULTIPLE:
        raise CannotRun(
            f"pages of {limits.page_tokens} tokens; vLLM needs a multiple of {_PAGE_MULTIPLE}: "
            "deploy with pages of 16 tokens"
        )
    _, holders = tensor_holders(checkpoint)
    wanted = wanted_names(holders, sizes, layers)
    files = {name: holders[name] for name in sorted(wanted)}
    entries = {
        name: entry
        for file in set(files.values())
        for name, entry in read_entries(file).items()
        if name in files
    }
    if lacking := files.keys() - entries.keys():
        raise CheckpointError(
            f"{files[min(lacking)]} lacks tensor {min(lacking)[:80]!r}; download the checkpoint "
            "again"
        )
    total_bytes = sum(entry.nbytes for entry in entries.values())
    require_memory(
        torch.device("cuda" if torch.cuda.is_available() else "cpu"),
        needed_bytes=sizes.weights_bytes_of(layers),
        first=layers.start,
        end=layers.stop,
    )
    progress(0, total_bytes)
    try:
        config = compat.make_config(
            checkpoint,
            dtype=sizes.dtype_name,
            page_tokens=limits.page_tokens,
            max_context_tokens=limits.max_context_tokens,
            max_batch_tokens=limits.max_batch_tokens,
        )
        if record is not None:
            compat.allow_graphs(config, graph_sizes(limits.max_batch_tokens))
        weights = compat.WeightFiles(
            holders=files, progress=lambda done_bytes: progress(done_bytes, total_bytes)
        )
        model = VllmModel(config, weights, layers=layers, num_layers=sizes.num_layers)
        if record is not None and not model.record_decodes(record, limits=limits):
            logger.warning("decode steps are not recorded: %s", ", ".join(model.paths))
    except torch.OutOfMemoryError:
        raise
    except (ValueError, AssertionError, RuntimeError) as error:
        # vLLM has no type of its own for models, dtypes and quantisations that it cannot run here
        logger.exception("vLLM made no model of %s", checkpoint)
        raise CannotRun(
            f"vLLM {VLLM_VERSION} cannot run layers [{layers.start}, {layers.stop}) of "
            f"{checkpoint}: {_first_line(error)}; for a family of HelixWeb's own, start the node's "
            "agent with --engine helix"
        ) from error
    if model.page_tokens != limits.page_tokens:
        raise CannotRun(
            f"vLLM keeps the KV cache of this model in pages of {model.page_tokens} tokens, the "
            f"plan in pages of {limits.page_tokens}: deploy with pages of {model.page_tokens} "
            "tokens"
        )
    expected = page_bytes(sizes, page_tokens=limits.page_tokens)
    if model.page_bytes != expected:
        raise CannotRun(
            f"a page of vLLM's KV cache has {model.page_bytes} bytes, {expected} were planned for; "
            "run the model with the engine helix"
        )
    return VllmLayers(model=model, sizes=sizes)


def wanted_names(names: Collection[str], sizes: DecoderSizes, layers: range) -> set[str]:
    """Of the tensors `names` those that a stage with `layers` reads."""
    return {
        name
        for name in names
        if is_wanted(name, layers, num_layers=sizes.num_layers, is_tied=sizes.tie_word_embeddings)
    }


def _first_line(error: BaseException) -> str:
    """The line of the first cause that says something."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, ValidationError):
        return str(error.errors()[0]["msg"])
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
