"""Opens a stage whose layers several ranks share, whichever engine computes them."""

from collections.abc import Callable, Collection

import torch

from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.checkpoints.weight_source import Progress, WeightSource
from runtime.engine.backend import CannotRun, Opened
from runtime.engine.fitting import engine_text, fit
from runtime.engine.follower import RankShare
from runtime.engine.grammar import Grammars
from runtime.engine.limits import EngineLimits
from runtime.engine.memory import pages_in_free_memory
from runtime.engine.model_backend import ModelBackend
from runtime.engine.ranks import OnLost, RankGroup
from runtime.models.free_memory import require_memory
from runtime.protocol.stage_pipe import StageLaunch


def open_ranks(
    launch: StageLaunch,
    source: WeightSource,
    sizes: DecoderSizes,
    own: DecoderSizes,
    *,
    wanted: Callable[[Collection[str]], Collection[str]],
    share: Callable[[EngineLimits, str], RankShare],
    progress: Progress,
    on_lost: OnLost,
    reason: str,
) -> Opened:
    """A stage of a model with these `sizes`, of which each rank has `own`.

    Each has an equal part of the memory budget; what one rank holds, each does. `wanted` picks the
    tensors to read, `share` says what the ranks need to know, by limits and type of device. For the
    others see `open_model`. Raises BudgetTooSmall, CannotRun, CheckpointError, RankLost.
    """
    assignment = launch.assignment
    first, end, ranks = assignment.first, assignment.end, assignment.tensor_parallel
    has_gpu = torch.cuda.is_available()
    if has_gpu and torch.cuda.device_count() < ranks:
        raise CannotRun(
            f"{ranks} ranks need a GPU each, this machine has {torch.cuda.device_count()}; deploy "
            "with a lower degree of tensor parallelism"
        )
    limits, pages = fit(own, assignment, memory_budget_bytes=launch.memory_budget_bytes // ranks)
    if not has_gpu:  # on GPUs each rank sees for itself
        require_memory(
            torch.device("cpu"),
            needed_bytes=own.weights_bytes(first, end) * ranks,
            first=first,
            end=end,
        )
    progress = source.fetch(wanted, read_bytes=sizes.weights_bytes(first, end), progress=progress)
    group = RankGroup.open(
        share(limits, "cuda" if has_gpu else "cpu"),
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
            grammars=Grammars(source.folder, vocab_size=sizes.vocab_size),
            engine=engine_text(f"{group.engine}, {ranks} ranks", reason),
        ),
        limits=limits,
        device=f"{ranks} {'GPUs' if has_gpu else 'processes'}",
        close=group.close,
    )
