"""Makes the backend of a launch: reads weights, and gives what memory is left to the KV pool."""

import logging
from collections.abc import Callable
from functools import partial

import torch

from runtime.checkpoints.fetch_progress import Tell
from runtime.checkpoints.weight_source import WeightSource
from runtime.engine.backend import CannotRun, Opened
from runtime.engine.compute_dtype import compute_dtype, wire_dtype
from runtime.engine.fitting import check_plan, engine_text, fit, source_of_weights
from runtime.engine.grammar import Grammars
from runtime.engine.helix_ranks import HelixShare
from runtime.engine.kv_cache import KvCache, page_bytes
from runtime.engine.memory import (
    BudgetTooSmall,
    pages_in_free_memory,
)
from runtime.engine.model_backend import ModelBackend
from runtime.engine.model_holdings import ModelHoldings
from runtime.engine.model_runner import ModelRunner
from runtime.engine.rank_opening import open_ranks
from runtime.engine.ranks import RankLost
from runtime.models.checkpoint import CheckpointError, Progress
from runtime.models.compact_decoder import CompactDecoder
from runtime.models.config import CompactConfig, read_config
from runtime.models.free_memory import free_bytes, require_memory
from runtime.models.linear import VARIABLE as PRODUCTS_VARIABLE
from runtime.models.linear import UnknownProducts, cpu_products
from runtime.models.ranks import ALONE
from runtime.models.sharding import Shard, shard_config
from runtime.models.weights import load_compact, load_decoder, wanted_tensors
from runtime.protocol.stage_pipe import StageLaunch

logger = logging.getLogger(__name__)


def open_model(
    launch: StageLaunch,
    *,
    progress: Callable[[int, int], None],
    on_lost: Callable[[str], None],
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
    try:
        products = cpu_products()  # refuses an unknown choice before anything is read
        if not torch.cuda.is_available():
            logger.info("products on the CPU: %s (%s changes it)", products, PRODUCTS_VARIABLE)
        if launch.assignment.tensor_parallel == 1:
            return _open_alone(launch, progress, tell_fetch, reason)
        return _open_shared(launch, progress, on_lost, tell_fetch, reason)
    except (CheckpointError, BudgetTooSmall, RankLost, UnknownProducts) as error:
        raise CannotRun(str(error)) from error
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise CannotRun(f"out of memory ({error}); lower the node's memory budget") from error


def _open_alone(
    launch: StageLaunch, progress: Callable[[int, int], None], tell_fetch: Tell, reason: str
) -> Opened:
    assignment = launch.assignment
    layers = range(assignment.first, assignment.end)
    source = source_of_weights(launch, tell_fetch)
    checkpoint = source.folder
    stored = read_config(checkpoint)
    check_plan(assignment, stored)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = stored.computed_in(
        compute_dtype(launch.engine.compute_dtype, stored.dtype_name, device)
    )
    limits, pages = fit(config, assignment, memory_budget_bytes=launch.memory_budget_bytes)
    read_bytes = config.weights_bytes(layers.start, layers.stop)
    progress = source.fetch(
        partial(wanted_tensors, config, first=layers.start, end=layers.stop),
        read_bytes=read_bytes,
        progress=progress,
    )
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
    runner = ModelRunner(
        decoder,
        cache,
        max_context_tokens=limits.max_context_tokens,
        wire_dtype=wire_dtype(assignment, stored),
    )
    holdings = None
    # of a bridged family none are added: making its model sets torch's defaults for all threads
    if isinstance(config, CompactConfig) and isinstance(decoder, CompactDecoder):
        holdings = ModelHoldings(
            runner,
            decoder=decoder,
            read=partial(_read, source, config, device),
            limits=limits,
            memory_budget_bytes=launch.memory_budget_bytes,
        )
    return Opened(
        backend=ModelBackend(
            runner,
            grammars=Grammars(checkpoint, vocab_size=config.vocab_size),
            engine=engine_text(f"helix on {device} in {config.dtype_name}", reason),
        ),
        limits=limits,
        device=str(device),
        holdings=holdings,
    )


def _read(
    source: WeightSource,
    config: CompactConfig,
    device: torch.device,
    layers: range,
    progress: Progress,
) -> CompactDecoder:
    """More layers of the same checkpoint. Raises CheckpointError."""
    read_bytes = config.weights_bytes_of(layers)
    require_memory(device, needed_bytes=read_bytes, first=layers.start, end=layers.stop)
    progress = source.fetch(
        partial(wanted_tensors, config, first=layers.start, end=layers.stop),
        read_bytes=read_bytes,
        progress=progress,
    )
    return load_compact(
        source.folder,
        config,
        first=layers.start,
        end=layers.stop,
        device=device,
        progress=progress,
        ranks=ALONE,
    )


def _open_shared(
    launch: StageLaunch,
    progress: Callable[[int, int], None],
    on_lost: Callable[[str], None],
    tell_fetch: Tell,
    reason: str,
) -> Opened:
    """By several ranks, each with its share of the budget; what one rank holds, each does."""
    assignment = launch.assignment
    first, end, ranks = assignment.first, assignment.end, assignment.tensor_parallel
    source = source_of_weights(launch, tell_fetch)
    stored = read_config(source.folder)
    check_plan(assignment, stored)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = stored.computed_in(
        compute_dtype(launch.engine.compute_dtype, stored.dtype_name, device)
    )
    if not isinstance(config, CompactConfig):
        raise CannotRun(
            f"{assignment.checkpoint} is of a family that only the bridge runs, which cannot share "
            f"a layer among {ranks} ranks; deploy it without tensor parallelism"
        )
    return open_ranks(
        launch,
        source,
        config,
        shard_config(config, Shard(rank=0, ranks=ranks)),
        wanted=partial(wanted_tensors, config, first=first, end=end),
        share=lambda limits, device_type: HelixShare(
            checkpoint=source.folder,
            first=first,
            end=end,
            page_tokens=limits.page_tokens,
            max_context_tokens=limits.max_context_tokens,
            threads=launch.threads,
            device_type=device_type,
            dtype_name=config.dtype_name,
            wire_dtype=wire_dtype(assignment, stored),
        ),
        progress=progress,
        on_lost=on_lost,
        reason=reason,
    )
