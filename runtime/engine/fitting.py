"""What a stage checks before it reads weights, whichever engine computes it."""

from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.checkpoints.fetch_progress import Tell
from runtime.checkpoints.weight_source import WeightSource
from runtime.engine.backend import CannotRun
from runtime.engine.limits import EngineLimits
from runtime.engine.memory import fit_step, kv_pages, stage_memory
from runtime.engine.weight_peers import peers_of
from runtime.protocol.control import ENGINE_TEXT_LENGTH, StageAssignment
from runtime.protocol.engine_options import PromptRule
from runtime.protocol.stage_pipe import StageLaunch


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


def source_of_weights(launch: StageLaunch, tell_fetch: Tell) -> WeightSource:
    """Where the assignment's checkpoint is read from. Raises CheckpointError."""
    peers = peers_of(launch.weights)
    return WeightSource.of(
        launch.assignment.checkpoint, launch.weights, peers=peers, tell=tell_fetch
    )


def check_plan(assignment: StageAssignment, sizes: DecoderSizes) -> None:
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


def engine_text(engine: str, reason: str) -> str:
    """What a node's page shows of the engine of its stage."""
    return (f"{engine}: {reason}" if reason else engine)[:ENGINE_TEXT_LENGTH]
