"""Makes the backend of a launch: reads weights, and gives what memory is left to the KV cache."""

from collections.abc import Callable
from typing import Any

import torch

from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.fetch_progress import Tell
from runtime.checkpoints.weight_source import Progress, WeightSource
from runtime.engine.backend import CannotRun, Opened
from runtime.engine.grammar import Grammars
from runtime.engine.holdings import RunnerHoldings
from runtime.engine.kv_cache import page_bytes
from runtime.engine.limits import EngineLimits
from runtime.engine.memory import (
    BudgetTooSmall,
    fit_step,
    kv_pages,
    pages_in_free_memory,
    stage_memory,
)
from runtime.engine.model_backend import ModelBackend
from runtime.engine.ranks import OnLost, RankGroup, RankLost, Runner
from runtime.engine.stage_engine import RankTask, StageEngine
from runtime.engine.weight_peers import peers_of
from runtime.models.free_memory import require_memory
from runtime.models.linear import UnknownProducts
from runtime.protocol.control import ENGINE_TEXT_LENGTH, StageAssignment
from runtime.protocol.engine_options import PromptRule
from runtime.protocol.engines import EngineSettings
from runtime.protocol.stage_pipe import StageLaunch

AnyEngine = StageEngine[Any, Any]


def open_stage(
    launch: StageLaunch,
    make_engine: Callable[[WeightSource, EngineSettings], AnyEngine],
    *,
    progress: Progress,
    on_lost: OnLost,
    tell_fetch: Tell = lambda _: None,
    reason: str = "",
) -> Opened:
    """The layers of the assignment's checkpoint, in memory.

    `progress` gets bytes read so far and in all, and may raise to stop; `tell_fetch` how far a
    fetch is, now and when layers are added; `reason` why this engine was chosen. `on_lost` is
    called, from a thread, when a rank of the stage died: see `RankGroup.open`. Raises CannotRun and
    OSError for what the person who deployed can repair.
    """
    torch.set_num_threads(launch.threads)
    assignment, peers = launch.assignment, peers_of(launch.weights)
    try:
        source = WeightSource.of(
            assignment.checkpoint, launch.weights, peers=peers, tell=tell_fetch
        )
        engine = make_engine(source, launch.engine)
        _check_plan(assignment, engine.stored)
        if assignment.tensor_parallel == 1:
            return _open_alone(launch, engine, progress, reason)
        return _open_shared(launch, engine, progress, on_lost, reason)
    except (CheckpointError, BudgetTooSmall, RankLost, UnknownProducts) as error:
        raise CannotRun(str(error)) from error
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise CannotRun(f"out of memory ({error}); lower the node's memory budget") from error


def engine_class(*, is_vllm: bool) -> type[AnyEngine]:
    """Imported when it is asked for: either environment lacks the other engine's libraries."""
    if is_vllm:
        from runtime.engine.vllm_engine import VllmEngine

        return VllmEngine
    from runtime.engine.helix_engine import HelixEngine

    return HelixEngine


def _open_alone(launch: StageLaunch, engine: AnyEngine, progress: Progress, reason: str) -> Opened:
    assignment, budget_bytes = launch.assignment, launch.memory_budget_bytes
    layers, sizes = range(assignment.first, assignment.end), engine.sizes
    limits, planned = fit(sizes, assignment, memory_budget_bytes=budget_bytes)
    opened = engine.read(layers, limits, engine.fetch(layers, progress))
    runner = opened.runner(
        pages=opened.pages(limits, planned=planned, budget_bytes=budget_bytes),
        most_pages=budget_bytes // page_bytes(sizes, page_tokens=limits.page_tokens),
        wire_dtype=engine.wire_dtype(launch),
    )
    read = engine.read_beside(runner, limits)
    return Opened(
        backend=_backend(engine, runner, opened.engine, reason),
        limits=limits,
        device=str(engine.device),
        holdings=None
        if read is None
        else RunnerHoldings(
            runner, sizes, read=read, limits=limits, memory_budget_bytes=budget_bytes
        ),
    )


def _open_shared(
    launch: StageLaunch, engine: AnyEngine, progress: Progress, on_lost: OnLost, reason: str
) -> Opened:
    """By several ranks, each with its share of the budget; what one rank holds, each does."""
    assignment = launch.assignment
    layers, ranks = range(assignment.first, assignment.end), assignment.tensor_parallel
    own, has_gpu = engine.of_rank(ranks), torch.cuda.is_available()
    if has_gpu and torch.cuda.device_count() < ranks:
        raise CannotRun(
            f"{ranks} ranks need a GPU each, this machine has {torch.cuda.device_count()}; deploy "
            "with a lower degree of tensor parallelism"
        )
    limits, pages = fit(own, assignment, memory_budget_bytes=launch.memory_budget_bytes // ranks)
    if not has_gpu:  # on GPUs each rank sees for itself
        require_memory(
            torch.device("cpu"),
            needed_bytes=own.weights_bytes_of(layers) * ranks,
            first=layers.start,
            end=layers.stop,
        )
    group = RankGroup.open(
        RankTask(
            engine_type=type(engine),
            folder=engine.source.folder,
            settings=launch.engine,
            layers=layers,
            limits=limits,
            wire_dtype=engine.wire_dtype(launch),
            threads=launch.threads,
        ),
        ranks=ranks,
        progress=engine.fetch(layers, progress),
        on_lost=on_lost,
    )
    try:
        free = group.free_bytes
        pages = min(pages, pages_in_free_memory(own, limits, free_bytes=free, ranges=[layers]))
        runner = group.make_runner(pages=pages)
    except BaseException:
        group.close()
        raise
    return Opened(
        backend=_backend(engine, runner, f"{group.engine}, {ranks} ranks", reason),
        limits=limits,
        device=f"{ranks} {'GPUs' if has_gpu else 'processes'}",
        close=group.close,
    )


def fit(
    sizes: DecoderSizes, assignment: StageAssignment, *, memory_budget_bytes: int
) -> tuple[EngineLimits, int]:
    """Limits and pages within the budget. Raises BudgetTooSmall."""
    longest = assignment.max_context_tokens
    ranges = [range(assignment.first, assignment.end)]
    limits = fit_step(
        sizes,
        EngineLimits(
            page_tokens=assignment.page_tokens,
            max_batch_tokens=max(assignment.max_batch_tokens, longest)
            if assignment.options.prompts is PromptRule.WHOLE
            else assignment.max_batch_tokens,
            max_context_tokens=longest,
            reserve_bytes=assignment.reserve_bytes,
        ),
        memory_budget_bytes=memory_budget_bytes,
        needed_bytes=lambda limits: stage_memory(sizes, limits, ranges).needed,
    )
    pages = kv_pages(sizes, limits, memory_budget_bytes=memory_budget_bytes, ranges=ranges)
    return limits, pages


def _check_plan(assignment: StageAssignment, sizes: DecoderSizes) -> None:
    """Raises CannotRun unless the plan was made for a checkpoint of these sizes."""
    if assignment.num_layers != sizes.num_layers:
        raise CannotRun(
            f"the plan is for {assignment.num_layers} layers, {assignment.checkpoint} has "
            f"{sizes.num_layers}; plan again for this checkpoint"
        )
    if assignment.max_context_tokens > sizes.max_position_embeddings:
        raise CannotRun(
            f"max_context_tokens is {assignment.max_context_tokens}, {assignment.checkpoint} "
            f"knows {sizes.max_position_embeddings} positions; deploy with a shorter context"
        )


def _backend(engine: AnyEngine, runner: Runner, text: str, reason: str) -> ModelBackend:
    """Samples behind the rows of `runner`. `text`: what computes them, for people."""
    return ModelBackend(
        runner,
        grammars=Grammars(engine.source.folder, vocab_size=engine.sizes.vocab_size),
        engine=(f"{text}: {reason}" if reason else text)[:ENGINE_TEXT_LENGTH],
    )
