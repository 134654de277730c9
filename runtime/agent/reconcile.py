"""What the agent does next, from what is desired and what its stage reported; pure.

Level-triggered: it is asked again after every change, so a lost message costs nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from runtime.protocol.control import DesiredState, ObservedState, StageAssignment, StageStats
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
from runtime.protocol.weight_fetch import WeightFetch

RETRY_FIRST_S = 1.0
RETRY_LIMIT_S = 60.0
# A stage that served this long and then died starts its count of failures anew.
STEADY_AFTER_S = 60.0
# A stage reports between its steps, about once a second. Silence is told early; it ends the stage
# only when it has lasted longer than the coordinator waits for a token, so that a slow step, which
# costs its requests anyway, is not taken for a hang.
SILENT_AFTER_S = 10.0
HANGS_AFTER_S = 150.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningStage:
    """The child process. Times of a monotonic clock.

    `assignment` is what it was last told to run; `phase` is how far that is: LOADING, READY, IDLE
    when it was retired or could not be added, or STOPPING the process as a whole. `beside` it go on
    earlier ones, oldest first, that are not retired. `heard_s`: when it last reported, once it
    runs. `fetch`: of weights that were not on this machine. `refused`: could not be added, but may
    run in a process of its own.
    """

    assignment: StageAssignment
    phase: Phase
    beside: tuple[StageAssignment, ...] = ()
    loaded_ratio: float | None = None
    ready_s: float | None = None
    heard_s: float | None = None
    stats: StageStats | None = None
    fetch: WeightFetch | None = None
    refused: StageAssignment | None = None

    @property
    def serving(self) -> tuple[StageAssignment, ...]:
        """All whose requests it takes, oldest first."""
        return (*self.beside, self.assignment) if self.phase is Phase.READY else self.beside


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A stage that ended by itself or could not add it, `count` times in a row, last at `at_s`."""

    assignment: StageAssignment
    message: str
    count: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalState:
    """What the agent knows of its machine."""

    running: RunningStage | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartStage:
    """Start a stage process for this assignment."""

    assignment: StageAssignment


@dataclass(frozen=True, slots=True, kw_only=True)
class AddGeneration:
    """Have the running stage serve this assignment beside what it serves."""

    assignment: StageAssignment


@dataclass(frozen=True, slots=True, kw_only=True)
class StopStage:
    """End the stage process and wait until it has gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KillStage:
    """Kill the stage process, which hangs and would not hear a request to stop, as a failure."""

    message: str


Action = StartStage | AddGeneration | StopStage | KillStage


def next_action(desired: DesiredState, local: LocalState, *, now_s: float) -> Action | None:
    """The one step towards `desired`; None when there is nothing to do now."""
    wanted, running = desired.assignment, local.running
    if running is not None:
        hangs_s = _hangs_at_s(running)
        if not _may_go_on(desired, running):
            return StopStage()
        if hangs_s is not None and now_s >= hangs_s:
            return KillStage(
                message=f"the stage hung: it said nothing for {HANGS_AFTER_S:g} s and was killed"
            )
    if wanted is None or _is_under_way(wanted, running):
        return None
    retry_s = retry_at_s(wanted, local)
    if retry_s is not None and now_s < retry_s:
        return None
    return StartStage(assignment=wanted) if running is None else AddGeneration(assignment=wanted)


def _is_under_way(wanted: StageAssignment, running: RunningStage | None) -> bool:
    """Whether it is served, or being loaded."""
    if running is None or running.assignment != wanted:
        return False
    return running.phase in (Phase.LOADING, Phase.READY)


def _may_go_on(desired: DesiredState, running: RunningStage) -> bool:
    """Whether the process can become what is desired without being ended first."""
    wanted = desired.assignment
    if running.phase is Phase.STOPPING:
        return False
    if wanted is None:
        return desired.continues and bool(running.serving)
    if running.assignment == wanted and running.refused != wanted:
        return True  # earlier ones beside it are the coordinator's to retire
    return desired.continues and bool(running.serving) and can_add(running, wanted)


def can_add(running: RunningStage, wanted: StageAssignment) -> bool:
    """Whether the process may serve `wanted` beside: the same model, by the same rules; all but
    layers, and who else there is, is alike."""
    own = running.assignment
    alike = wanted.model_copy(
        update={
            "deployment_id": own.deployment_id,
            "generation": own.generation,
            "first": own.first,
            "end": own.end,
            "layer_times": own.layer_times,
            "peers": own.peers,
        }
    )
    return alike == own and running.refused != wanted


def look_again_at_s(desired: DesiredState, local: LocalState) -> float | None:
    """When time alone may call for another action; None if only a change can."""
    moments = [retry_at_s(desired.assignment, local)]
    if local.running is not None:
        moments.append(_hangs_at_s(local.running))
    return min((moment for moment in moments if moment is not None), default=None)


def _hangs_at_s(running: RunningStage) -> float | None:
    """When a stage that goes on saying nothing counts as hanging; None before it runs."""
    if running.phase is Phase.STOPPING or running.heard_s is None:
        return None
    return running.heard_s + HANGS_AFTER_S


def retry_at_s(wanted: StageAssignment | None, local: LocalState) -> float | None:
    """When a stage that failed is started again; None if the wanted one has not failed."""
    failure = local.failure
    if failure is None or failure.assignment != wanted or _is_under_way(wanted, local.running):
        return None
    # The exponent is bounded so that a stage that fails for weeks does not overflow it.
    wait_s = RETRY_FIRST_S * 2.0 ** min(failure.count - 1, 16)
    return failure.at_s + min(wait_s, RETRY_LIMIT_S)


def after_failure(local: LocalState, *, message: str, now_s: float) -> LocalState:
    """The state once the running stage ended by itself. Raises ValueError if none ran."""
    running = local.running
    if running is None:
        raise ValueError("no stage was running that could have failed")
    was_steady = running.ready_s is not None and now_s - running.ready_s >= STEADY_AFTER_S
    before = None if was_steady else local.failure
    return LocalState(failure=failed(running, before, message=message, now_s=now_s))


def failed(running: RunningStage, before: Failure | None, *, message: str, now_s: float) -> Failure:
    """Of what `running` was last ordered to run; one more in a row if that failed `before`."""
    in_a_row = before is not None and before.assignment == running.assignment
    return Failure(
        assignment=running.assignment,
        message=message,
        count=before.count + 1 if before is not None and in_a_row else 1,
        at_s=now_s,
    )


def after_event(
    local: LocalState, event: StageEvent, *, told: Mapping[int, StageAssignment], now_s: float
) -> LocalState:
    """The state once the stage has reported `event`; `told`: what it was ordered to run, by
    generation."""
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


def observe(desired: DesiredState, local: LocalState, *, now_s: float) -> ObservedState:
    """What is told to helixweb: the state acted on, and how far it has come."""
    running, failure, wanted = local.running, local.failure, desired.assignment
    if running is not None and not _may_go_on(desired, running):
        # What runs but is not wanted is as good as stopping, whatever it says of itself.
        return ObservedState(
            generation=desired.generation,
            phase=Phase.STOPPING,
            message=f"stopping generation {running.assignment.generation}",
            first=running.assignment.first,
            end=running.assignment.end,
            stage=running.stats,
        )
    seen = ObservedState(generation=desired.generation, phase=Phase.IDLE)
    if running is not None:
        others = (each.generation for each in running.serving if each != wanted)
        seen = seen.model_copy(
            update={
                "message": _remark(running, failure, now_s=now_s),
                "also_serving": tuple(others),
                "stage": running.stats,
            }
        )
    if wanted is None:
        return seen
    if running is not None and _is_under_way(wanted, running):
        is_loading = running.phase is Phase.LOADING
        return seen.model_copy(
            update={
                "phase": running.phase,
                "loaded_ratio": running.loaded_ratio if is_loading else None,
                "first": wanted.first,
                "end": wanted.end,
            }
        )
    if failure is not None and failure.assignment == wanted:
        again = f" (failed {failure.count} times; is tried again)" if failure.count > 1 else ""
        return seen.model_copy(update={"phase": Phase.FAILED, "message": failure.message + again})
    return seen.model_copy(update={"phase": Phase.LOADING, "loaded_ratio": 0.0})


def _remark(running: RunningStage, failure: Failure | None, *, now_s: float) -> str:
    is_loading = running.phase is Phase.LOADING
    if is_loading and failure is not None and failure.assignment == running.assignment:
        return f"tried again after: {failure.message}"
    if running.heard_s is not None and now_s - running.heard_s > SILENT_AFTER_S:
        return (
            f"the stage has said nothing for over {SILENT_AFTER_S:g} s; it runs a very long step "
            f"or hangs, and is restarted when that lasts {HANGS_AFTER_S:g} s"
        )
    return ""
