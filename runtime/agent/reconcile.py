"""What the agent does next, from what is desired and what is; pure.

Level-triggered: it is asked again after every change, so a lost message costs nothing.
"""

from dataclasses import dataclass

from runtime.protocol.control import DesiredState, ObservedState, Phase, StageAssignment, StageStats

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
    """The child process; `phase` is LOADING, READY or STOPPING. Times of a monotonic clock.

    `heard_s`: when it last reported, once it is ready.
    """

    assignment: StageAssignment
    phase: Phase
    loaded_ratio: float | None = None
    ready_s: float | None = None
    heard_s: float | None = None
    stats: StageStats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A stage that ended by itself, `count` times in a row, last at `at_s`."""

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
class StopStage:
    """End the stage process and wait until it has gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KillStage:
    """Kill the stage process, which hangs and would not hear a request to stop, as a failure."""

    message: str


Action = StartStage | StopStage | KillStage


def next_action(desired: DesiredState, local: LocalState, *, now_s: float) -> Action | None:
    """The one step towards `desired`; None when there is nothing to do now."""
    wanted = desired.assignment
    if local.running is not None:
        if local.running.assignment != wanted:
            return StopStage()
        hangs_s = _hangs_at_s(local.running)
        if hangs_s is not None and now_s >= hangs_s:
            return KillStage(
                message=f"the stage hung: it said nothing for {HANGS_AFTER_S:g} s and was killed"
            )
        return None
    if wanted is None:
        return None
    retry_s = retry_at_s(wanted, local)
    if retry_s is not None and now_s < retry_s:
        return None
    return StartStage(assignment=wanted)


def look_again_at_s(desired: DesiredState, local: LocalState) -> float | None:
    """When time alone may call for another action; None if only a change can."""
    if local.running is not None:
        return _hangs_at_s(local.running)
    return retry_at_s(desired.assignment, local)


def _hangs_at_s(running: RunningStage) -> float | None:
    """When a stage that goes on saying nothing counts as hanging; None while it loads."""
    if running.phase is not Phase.READY or running.heard_s is None:
        return None
    return running.heard_s + HANGS_AFTER_S


def retry_at_s(wanted: StageAssignment | None, local: LocalState) -> float | None:
    """When a stage that failed is started again; None if the wanted one has not failed."""
    failure = local.failure
    if local.running is not None or failure is None or failure.assignment != wanted:
        return None
    # The exponent is bounded so that a stage that fails for weeks does not overflow it.
    wait_s = RETRY_FIRST_S * 2.0 ** min(failure.count - 1, 16)
    return failure.at_s + min(wait_s, RETRY_LIMIT_S)


def after_failure(local: LocalState, *, message: str, now_s: float) -> LocalState:
    """The state once the running stage ended by itself. Raises ValueError if none ran."""
    running = local.running
    if running is None:
        raise ValueError("no stage was running that could have failed")
    before = local.failure
    was_steady = running.ready_s is not None and now_s - running.ready_s >= STEADY_AFTER_S
    in_a_row = before is not None and before.assignment == running.assignment and not was_steady
    return LocalState(
        failure=Failure(
            assignment=running.assignment,
            message=message,
            count=before.count + 1 if in_a_row and before is not None else 1,
            at_s=now_s,
        )
    )


def observe(desired: DesiredState, local: LocalState, *, now_s: float) -> ObservedState:
    """What is told to helixweb: the state acted on, and how far it has come."""
    running, failure, wanted = local.running, local.failure, desired.assignment
    if running is not None:
        # What runs but is not wanted is as good as stopping, whatever it says of itself.
        phase = running.phase if running.assignment == wanted else Phase.STOPPING
        return ObservedState(
            generation=desired.generation,
            phase=phase,
            message=_remark(running, phase, failure, now_s=now_s),
            loaded_ratio=running.loaded_ratio if phase is Phase.LOADING else None,
            first=running.assignment.first,
            end=running.assignment.end,
            stage=running.stats,
        )
    if wanted is None:
        return ObservedState(generation=desired.generation, phase=Phase.IDLE)
    if failure is not None and failure.assignment == wanted:
        again = f" (failed {failure.count} times; is tried again)" if failure.count > 1 else ""
        return ObservedState(
            generation=desired.generation, phase=Phase.FAILED, message=failure.message + again
        )
    return ObservedState(generation=desired.generation, phase=Phase.LOADING, loaded_ratio=0.0)


def _remark(running: RunningStage, phase: Phase, failure: Failure | None, *, now_s: float) -> str:
    if phase is Phase.STOPPING:
        return f"stopping generation {running.assignment.generation}"
    if phase is Phase.LOADING and failure is not None and failure.assignment == running.assignment:
        return f"tried again after: {failure.message}"
    if running.heard_s is not None and now_s - running.heard_s > SILENT_AFTER_S:
        return (
            f"the stage has said nothing for over {SILENT_AFTER_S:g} s; it runs a very long step "
            f"or hangs, and is restarted when that lasts {HANGS_AFTER_S:g} s"
        )
    return ""
