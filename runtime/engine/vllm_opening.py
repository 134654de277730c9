"""Makes the backend of a launch with vLLM's model code, in a process of vLLM's own environment."""

from collections.abc import Callable
from functools import partial

import torch

from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.fetch_progress import Tell
from runtime.checkpoints.weight_source import WeightSource
from runtime.engine.backend import CannotRun, Opened
from runtime.engine.compute_dtype import compute_dtype, wire_dtype
from runtime.engine.fitting import check_plan, engine_text, fit, source_of_weights
from runtime.engine.grammar import Grammars
from runtime.engine.kv_cache import page_bytes
from runtime.engine.largest_step import CudaMemory, pages_beside_step
from runtime.engine.limits import EngineLimits
from runtime.engine.memory import BudgetTooSmall, pages_in_free_memory
from runtime.engine.model_backend import ModelBackend
from runtime.engine.rank_opening import open_ranks
from runtime.engine.ranks import RankLost
from runtime.engine.vllm_graphs import cuda_recorder
from runtime.engine.vllm_holdings import VllmHoldings
from runtime.engine.vllm_loading import Progress, have_at_hand, open_layers, wanted_names
from runtime.engine.vllm_model import VllmModel
from runtime.engine.vllm_ranks import VllmShare
from runtime.models.free_memory import free_bytes
from runtime.protocol.stage_pipe import StageLaunch


def open_vllm(
    launch: StageLaunch,
    *,
    progress: Progress,
    on_lost: Callable[[str], None],
    tell_fetch: Tell = lambda _: None,
    reason: str = "",
) -> Opened:
    """The layers of the assignment's checkpoint, in memory.

    `progress` gets bytes read so far and in all, and may raise to stop; `tell_fetch` how far a
    fetch is; `reason` why vLLM was chosen. `on_lost` is called, from a thread, when a rank of the
    stage died: see `RankGroup.open`. Raises CannotRun and OSError for what the person who deployed
    can repair.
    """
    torch.set_num_threads(launch.threads)
    try:
        if launch.assignment.tensor_parallel == 1:
            return _open_alone(launch, progress, tell_fetch, reason)
        return _open_shared(launch, progress, on_lost, tell_fetch, reason)
    except (CheckpointError, BudgetTooSmall, RankLost) as error:
        raise CannotRun(str(error)) from error
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise CannotRun(f"out of memory ({error}); lower the node's memory budget") from error


def _pages(
    model: VllmModel,
    sizes: DecoderSizes,
    limits: EngineLimits,
    launch: StageLaunch,
    *,
    planned: int,
) -> int:
    """Of the KV cache beside the weights, which are in memory: what the largest step leaves on a
    GPU, else as many as were planned for, if so much memory is free."""
    if model.device.type != "cuda":
        free = free_bytes(model.device)
        ranges = [model.layers]
        return min(planned, pages_in_free_memory(sizes, limits, free_bytes=free, ranges=ranges))
    return pages_beside_step(
        model.run_largest,
        CudaMemory(model.device),
        limits,
        budget_bytes=launch.memory_budget_bytes,
        page_bytes=page_bytes(sizes, page_tokens=limits.page_tokens),
        n_layers=len(model.layers),
    )


def _open_alone(launch: StageLaunch, progress: Progress, tell_fetch: Tell, reason: str) -> Opened:
    assignment = launch.assignment
    layers = range(assignment.first, assignment.end)
    source = source_of_weights(launch, tell_fetch)
    stored, sizes = _sizes(launch, source)
    limits, planned_pages = fit(sizes, assignment, memory_budget_bytes=launch.memory_budget_bytes)
    read_bytes = sizes.weights_bytes(layers.start, layers.stop)
    progress = source.fetch(
        lambda names: wanted_names(names, sizes, layers), read_bytes=read_bytes, progress=progress
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    record = (
        cuda_recorder(device) if launch.engine.decode_graphs and device.type == "cuda" else None
    )
    opened = open_layers(
        source.folder, sizes, layers, limits=limits, progress=progress, record=record
    )
    runner = opened.runner(
        pages=_pages(opened.model, sizes, limits, launch, planned=planned_pages),
        most_pages=launch.memory_budget_bytes // page_bytes(sizes, page_tokens=limits.page_tokens),
        wire_dtype=wire_dtype(assignment, stored),
    )

    def make(added: range) -> VllmModel:
        return open_layers(
            source.folder,
            sizes,
            added,
            limits=limits,
            progress=lambda _done, _total: None,
            record=record,
        ).model

    return Opened(
        backend=ModelBackend(
            runner,
            grammars=Grammars(source.folder, vocab_size=sizes.vocab_size),
            engine=engine_text(opened.engine, reason),
        ),
        limits=limits,
        device=opened.engine,
        holdings=VllmHoldings(
            runner,
            sizes,
            prepare=partial(have_at_hand, source, sizes),
            make=make,
            limits=limits,
            memory_budget_bytes=launch.memory_budget_bytes,
        ),
    )


def _sizes(launch: StageLaunch, source: WeightSource) -> tuple[DecoderSizes, DecoderSizes]:
    """Of the model as it is stored, and as it is computed here."""
    stored = source.sizes()
    check_plan(launch.assignment, stored)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return stored, stored.computed_in(
        compute_dtype(launch.engine.compute_dtype, stored.dtype_name, device)
    )


def _open_shared(
    launch: StageLaunch,
    progress: Progress,
    on_lost: Callable[[str], None],
    tell_fetch: Tell,
    reason: str,
) -> Opened:
    """By several ranks, each with its share of the budget."""
    assignment = launch.assignment
    layers, ranks = range(assignment.first, assignment.end), assignment.tensor_parallel
    source = source_of_weights(launch, tell_fetch)
    stored, sizes = _sizes(launch, source)
    own = sizes.of_rank(ranks)
    return open_ranks(
        launch,
        source,
        sizes,
        own,
        wanted=lambda names: wanted_names(names, sizes, layers),
        share=lambda limits, device_type: VllmShare(
            checkpoint=source.folder,
            sizes=own,
            layers=layers,
            limits=limits,
            wire_dtype=wire_dtype(assignment, stored),
            threads=launch.threads,
            device_type=device_type,
        ),
        progress=progress,
        on_lost=on_lost,
        reason=reason,
    )
