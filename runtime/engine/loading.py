"""Makes the backend of a launch: reads weights, and gives what memory is left to the KV pool."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from runtime.engine.backend import CannotRun, Opened
from runtime.engine.decode_graphs import DecodeGraphs
from runtime.engine.follower import StageShare
from runtime.engine.grammar import Grammars
from runtime.engine.kv_cache import KvCache, page_bytes
from runtime.engine.limits import EngineLimits
from runtime.engine.memory import BudgetTooSmall, fit_step, kv_pages, pages_in_free_memory
from runtime.engine.model_backend import ModelBackend
from runtime.engine.model_holdings import ModelHoldings
from runtime.engine.model_runner import ModelRunner
from runtime.engine.ranks import RankGroup, RankLost
from runtime.engine.varlen_attention import find_kernel
from runtime.models.checkpoint import CheckpointError, Progress
from runtime.models.compact_decoder import CompactDecoder
from runtime.models.config import CompactConfig, read_config
from runtime.models.decoder import LoadedDecoder
from runtime.models.free_memory import free_bytes, require_memory
from runtime.models.model_config import ModelConfig
from runtime.models.ranks import ALONE
from runtime.models.sharding import Shard, shard_config
from runtime.models.weights import load_compact, load_decoder
from runtime.protocol.control import StageAssignment
from runtime.protocol.engine_options import PromptRule
from runtime.protocol.stage_pipe import StageLaunch


def open_model(
    launch: StageLaunch,
    *,
    progress: Callable[[int, int], None],
    on_lost: Callable[[str], None],
) -> Opened:
    """The layers of the assignment's checkpoint, in memory.

    `progress` gets bytes read so far and in all, and may raise to stop. `on_lost` is told, from a
    thread, when a rank of the stage died: see `RankGroup.open`. Raises CannotRun and OSError for
    what the person who deployed can mend.
    """
    torch.set_num_threads(launch.threads)
    try:
        if launch.assignment.tensor_parallel == 1:
            return _open_alone(launch, progress)
        return _open_shared(launch, progress, on_lost)
    except (CheckpointError, BudgetTooSmall, RankLost) as error:
        raise CannotRun(str(error)) from error
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise CannotRun(f"out of memory ({error}); lower the node's memory budget") from error


def _open_alone(launch: StageLaunch, progress: Callable[[int, int], None]) -> Opened:
    assignment = launch.assignment
    layers = range(assignment.first, assignment.end)
    checkpoint = Path(assignment.checkpoint)
    config = _checked_config(assignment)
    limits, pages = _fit(config, assignment, memory_budget_bytes=launch.memory_budget_bytes)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    decoder = load_decoder(
        checkpoint, config, first=layers.start, end=layers.stop, device=device, progress=progress
    )
    free = free_bytes(device)
    pages = min(pages, pages_in_free_memory(config, limits, free_bytes=free, ranges=[layers]))
    cache = KvCache(
        config,
        pages=pages,
        page_tokens=limits.page_tokens,
        device=device,
        most_pages=launch.memory_budget_bytes // page_bytes(config, page_tokens=limits.page_tokens),
    )
    runner = make_runner(decoder, cache, limits)
    holdings = None
    # of a bridged family none are added: making its model sets torch's defaults for all threads
    if isinstance(config, CompactConfig) and isinstance(decoder, CompactDecoder):
        holdings = ModelHoldings(
            runner,
            decoder=decoder,
            read=partial(_read, checkpoint, config, device),
            limits=limits,
            memory_budget_bytes=launch.memory_budget_bytes,
        )
    return Opened(
        backend=ModelBackend(runner, grammars=Grammars(checkpoint, vocab_size=config.vocab_size)),
        limits=limits,
        device=str(device),
        holdings=holdings,
    )


def _read(
    checkpoint: Path, config: CompactConfig, device: torch.device, layers: range, progress: Progress
) -> CompactDecoder:
    """More layers of the same checkpoint. Raises CheckpointError."""
    require_memory(
        device,
        needed_bytes=config.weights_bytes_of(layers),
        first=layers.start,
        end=layers.stop,
    )
    return load_compact(
        checkpoint,
        config,
        first=layers.start,
        end=layers.stop,
        device=device,
        progress=progress,
        ranks=ALONE,
    )


def make_runner(decoder: LoadedDecoder, cache: KvCache, limits: EngineLimits) -> ModelRunner:
    """The fastest that the device can: on a GPU by pages and recorded decodes.

    Of a bridged family decodes are not recorded: its Python walks the model's own forward.
    """
    kernel = find_kernel(cache.pools)
    graphs = None
    if kernel is not None and isinstance(decoder, CompactDecoder):
        graphs = DecodeGraphs(kernel, context_pages=limits.context_pages)
    return ModelRunner(
        decoder,
        cache,
        max_context_tokens=limits.max_context_tokens,
        kernel=kernel,
        graphs=graphs,
        whole=[range(decoder.first, decoder.end)],
    )


def _open_shared(
    launch: StageLaunch, progress: Callable[[int, int], None], on_lost: Callable[[str], None]
) -> Opened:
    """By several ranks, each with its share of the budget; what one rank holds, each does."""
    assignment = launch.assignment
    first, end, ranks = assignment.first, assignment.end, assignment.tensor_parallel
    config = _checked_config(assignment)
    if not isinstance(config, CompactConfig):
        raise CannotRun(
            f"{assignment.checkpoint} is of a family that only the bridge runs, which cannot share "
            f"a layer among {ranks} ranks; deploy it without tensor parallelism"
        )
    has_gpu = torch.cuda.is_available()
    if has_gpu and torch.cuda.device_count() < ranks:
        raise CannotRun(
            f"{ranks} ranks need a GPU each, this machine has {torch.cuda.device_count()}; deploy "
            "with a lower degree of tensor parallelism"
        )
    own = shard_config(config, Shard(rank=0, ranks=ranks))
    limits, pages = _fit(own, assignment, memory_budget_bytes=launch.memory_budget_bytes // ranks)
    if not has_gpu:  # on GPUs each rank sees for itself
        require_memory(
            torch.device("cpu"),
            needed_bytes=own.weights_bytes(first, end) * ranks,
            first=first,
            end=end,
        )
    group = RankGroup.open(
        StageShare(
            checkpoint=Path(assignment.checkpoint),
            first=first,
            end=end,
            page_tokens=limits.page_tokens,
            max_context_tokens=limits.max_context_tokens,
            threads=launch.threads,
            device_type="cuda" if has_gpu else "cpu",
        ),
        ranks=ranks,
        progress=progress,
        on_lost=on_lost,
    )
    try:
        free = group.free_bytes
        ranges = [range(first, end)]
        pages = min(pages, pages_in_free_memory(own, limits, free_bytes=free, ranges=ranges))
        runner = group.make_runner(pages=pages)
    except BaseException:
        group.close()
        raise
    return Opened(
        backend=ModelBackend(
            runner,
            grammars=Grammars(Path(assignment.checkpoint), vocab_size=config.vocab_size),
        ),
        limits=limits,
        device=f"{ranks} {'GPUs' if has_gpu else 'processes'}",
        close=group.close,
    )


def _fit(
    config: ModelConfig, assignment: StageAssignment, *, memory_budget_bytes: int
) -> tuple[EngineLimits, int]:
    """Limits and pages within the budget. Raises BudgetTooSmall."""
    longest = assignment.max_context_tokens
    limits = fit_step(
        config,
        EngineLimits(
            page_tokens=assignment.page_tokens,
            max_batch_tokens=max(assignment.max_batch_tokens, longest)
            if assignment.options.prompts is PromptRule.WHOLE
            else assignment.max_batch_tokens,
            max_context_tokens=longest,
        ),
        memory_budget_bytes=memory_budget_bytes,
    )
    pages = kv_pages(
        config,
        limits,
        memory_budget_bytes=memory_budget_bytes,
        ranges=[range(assignment.first, assignment.end)],
    )
    return limits, pages


def _checked_config(assignment: StageAssignment) -> ModelConfig:
    """The checkpoint's, which must be the one that was planned for. Raises CannotRun."""
    config = read_config(Path(assignment.checkpoint))
    if assignment.num_layers != config.num_layers:
        raise CannotRun(
            f"the plan is for {assignment.num_layers} layers, {assignment.checkpoint} has "
            f"{config.num_layers}; plan again for this checkpoint"
        )
    if assignment.max_context_tokens > config.max_position_embeddings:
        raise CannotRun(
            f"max_context_tokens is {assignment.max_context_tokens}, {assignment.checkpoint} "
            f"knows {config.max_position_embeddings} positions; deploy with a shorter context"
        )
    return config
