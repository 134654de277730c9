"""Makes the backend of a launch: reads weights, and gives what memory is left to the KV pool."""

from collections.abc import Callable
from pathlib import Path

import torch

from runtime.engine.backend import CannotRun, Opened
from runtime.engine.grammar import Grammars
from runtime.engine.kv_cache import KvCache
from runtime.engine.limits import EngineLimits
from runtime.engine.memory import BudgetTooSmall, fit_step, kv_pages, pages_in_free_memory
from runtime.engine.model_backend import ModelBackend
from runtime.models.checkpoint import CheckpointError
from runtime.models.config import ModelConfig, read_config
from runtime.models.free_memory import free_bytes
from runtime.models.weights import load_decoder
from runtime.protocol.control import StageAssignment
from runtime.protocol.engine_options import PromptRule
from runtime.protocol.stage_pipe import StageLaunch


def open_model(launch: StageLaunch, *, progress: Callable[[int, int], None]) -> Opened:
    """The layers of the assignment's checkpoint, in memory.

    `progress` gets bytes read so far and in all, and may raise to stop. Raises CannotRun and
    OSError for what the person who deployed can mend.
    """
    torch.set_num_threads(launch.threads)
    try:
        return _open(launch, progress)
    except (CheckpointError, BudgetTooSmall) as error:
        raise CannotRun(str(error)) from error
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise CannotRun(f"out of memory ({error}); lower the node's memory budget") from error


def _open(launch: StageLaunch, progress: Callable[[int, int], None]) -> Opened:
    assignment = launch.assignment
    checkpoint = Path(assignment.checkpoint)
    config = read_config(checkpoint)
    _check_assignment(assignment, config)
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
        memory_budget_bytes=launch.memory_budget_bytes,
    )
    first, end = assignment.first, assignment.end
    pages = kv_pages(
        config,
        limits,
        memory_budget_bytes=launch.memory_budget_bytes,
        first=first,
        end=end,
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    decoder = load_decoder(
        checkpoint, config, first=first, end=end, device=device, progress=progress
    )
    pages = min(
        pages,
        pages_in_free_memory(config, limits, free_bytes=free_bytes(device), first=first, end=end),
    )
    return Opened(
        backend=ModelBackend(
            decoder,
            KvCache(config, pages=pages, page_tokens=limits.page_tokens, device=device),
            max_context_tokens=longest,
            grammars=Grammars(checkpoint, vocab_size=config.vocab_size),
        ),
        limits=limits,
        device=str(device),
    )


def _check_assignment(assignment: StageAssignment, config: ModelConfig) -> None:
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
