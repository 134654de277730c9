"""What the agent knows once its stage has said something; pure."""

from collections.abc import Mapping
from dataclasses import replace

from runtime.agent.reconcile import LocalState, RunningStage, failed
from runtime.protocol.control import StageAssignment
from runtime.protocol.phases import Phase
from runtime.protocol.stage_pipe import (
    CannotAddEvent,
    FetchingEvent,
    LoadingEvent,
    ReadyEvent,
    RetiredEvent,
    StageEvent,
    StatsEvent,
)


def after_event(
    local: LocalState, event: StageEvent, *, told: Mapping[int, StageAssignment], now_s: float
) -> LocalState:
    """`told`: all that the process was told to run, by generation."""
    running = local.running
    if running is None or running.phase is Phase.STOPPING:
        return local
    if isinstance(event, StatsEvent):
        return replace(local, running=replace(running, heard_s=now_s, stats=event.stats))
    if isinstance(event, FetchingEvent):
        return replace(local, running=replace(running, fetch=event.fetch))
    if isinstance(event, ReadyEvent):
        running = replace(running, heard_s=now_s, stats=event.stats)
        return replace(local, running=_with_ready(running, told[event.generation], now_s=now_s))
    if isinstance(event, RetiredEvent):
        return replace(local, running=_without(running, event.generation))
    if isinstance(event, LoadingEvent) and event.generation == running.assignment.generation:
        ratio = min(1.0, event.done_bytes / max(1, event.total_bytes))
        return replace(local, running=replace(running, loaded_ratio=ratio))
    if isinstance(event, CannotAddEvent) and event.generation == running.assignment.generation:
        return _after_refusal(local, running, event, now_s=now_s)
    return local  # of one that is not wanted any more


def _with_ready(
    running: RunningStage, assignment: StageAssignment, *, now_s: float
) -> RunningStage:
    if assignment != running.assignment:  # another was wanted while it was loaded
        return replace(running, beside=(*running.beside, assignment))
    ready_s = now_s if running.ready_s is None else running.ready_s
    return replace(running, phase=Phase.READY, ready_s=ready_s)


def _without(running: RunningStage, generation: int) -> RunningStage:
    beside = tuple(each for each in running.beside if each.generation != generation)
    is_latest = generation == running.assignment.generation
    return replace(running, beside=beside, phase=Phase.IDLE if is_latest else running.phase)


def _after_refusal(
    local: LocalState, running: RunningStage, event: CannotAddEvent, *, now_s: float
) -> LocalState:
    """It goes on with what it serves."""
    running = replace(running, phase=Phase.IDLE, loaded_ratio=None)
    if event.restart_helps:
        return replace(local, running=replace(running, refused=running.assignment))
    failure = failed(running, local.failure, message=event.message, now_s=now_s)
    return LocalState(running=running, failure=failure)
