"""What is done about an instance, from what was seen of it; pure.

Level-triggered: `next_step` is called again and again with what is there now, so that nothing
depends on a single observation.
"""

from dataclasses import dataclass, replace
from enum import StrEnum


class Condition(StrEnum):
    """Where an instance is; only one that is READY gets requests."""

    IDLE = "idle"  # not wanted
    WAITING = "waiting"  # ended, or never got well; begins again later
    STARTING = "starting"
    READY = "ready"
    UNWELL = "unwell"  # answered before, and does not now
    DRAINING = "draining"
    STOPPING = "stopping"


class Step(StrEnum):
    """What is to be done to its process."""

    NOTHING = "nothing"
    START = "start"
    TERMINATE = "terminate"
    KILL = "kill"


LOOK_EVERY_S = 1.0
_LOG_ENDS = "; its log ends: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long what may last. `bad_probes` in a row, one every `look_every_s`, make an instance
    unwell; one that was ready for `proven_s` starts again with the first back-off."""

    start_s: float = 900.0
    unwell_s: float = 60.0
    drain_s: float = 120.0
    stop_s: float = 30.0
    first_retry_s: float = 1.0
    longest_retry_s: float = 120.0
    proven_s: float = 300.0
    bad_probes: int = 3
    look_every_s: float = LOOK_EVERY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """`message` says why it is not ready, or was not last time; for people."""

    condition: Condition = Condition.IDLE
    since_s: float = 0.0
    failures: int = 0  # in a row
    bad_probes: int = 0  # in a row
    retry_s: float = 0.0  # not before, while it waits
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """`ended`: how its process ended; None while it runs, or was not started. `trouble`: what is
    wrong with it by its own answer, empty if it is well; None when it was not asked. `requests`: in
    it, as far as known. `produced_s`: when it last was seen to give a token, None if never.
    `last_words`: the end of its log. `first_error`: the line of it that says why it ended, if one
    does."""

    trouble: str | None = None
    ended: str | None = None
    requests: int = 0
    produced_s: float | None = None
    last_words: str = ""
    first_error: str = ""


def next_step(
    state: State, seen: Seen, *, wanted: bool, patience: Patience, now_s: float
) -> tuple[State, Step]:
    """The state after what was seen, and what to do to the process now."""
    condition = state.condition
    if seen.ended is not None:
        ended = _with_words(seen.ended, seen)
        return _after_end(state, ended, wanted=wanted, patience=patience, now_s=now_s)
    if condition is Condition.STOPPING:
        late = now_s - state.since_s > patience.stop_s
        return state, Step.KILL if late else Step.NOTHING
    if not wanted:
        return _unwanted(state, seen, patience=patience, now_s=now_s)
    if condition in (Condition.IDLE, Condition.WAITING):
        if condition is Condition.WAITING and now_s < state.retry_s:
            return state, Step.NOTHING
        return _into(state, Condition.STARTING, now_s=now_s), Step.START
    if condition is Condition.DRAINING:  # wanted again before it was drained
        state = _into(state, Condition.UNWELL, now_s=now_s)
    if seen.trouble is not None:
        state = after_probe(state, seen.trouble, patience=patience, now_s=now_s)
    return _unless_late(state, seen, patience=patience, now_s=now_s)


def after_probe(state: State, trouble: str, *, patience: Patience, now_s: float) -> State:
    """Of an instance that runs and was asked; all there is to decide of one that is not ours to
    start."""
    if not trouble:
        if state.condition is not Condition.READY:
            return replace(_into(state, Condition.READY, now_s=now_s), message="")
        proven = now_s - state.since_s >= patience.proven_s
        return replace(state, bad_probes=0, failures=0 if proven else state.failures)
    state = replace(state, bad_probes=state.bad_probes + 1, message=trouble)
    if state.condition is Condition.READY and state.bad_probes >= patience.bad_probes:
        return _into(state, Condition.UNWELL, now_s=now_s)
    return state


def _after_end(
    state: State, ended: str, *, wanted: bool, patience: Patience, now_s: float
) -> tuple[State, Step]:
    if not wanted:
        return replace(_into(state, Condition.IDLE, now_s=now_s), failures=0), Step.NOTHING
    failures = state.failures + 1
    wait_s = min(patience.longest_retry_s, patience.first_retry_s * 2 ** min(failures - 1, 30))
    # what led to its being stopped tells more than that it was
    message = state.message if state.condition is Condition.STOPPING else ended
    waiting = replace(
        _into(state, Condition.WAITING, now_s=now_s),
        failures=failures,
        retry_s=now_s + wait_s,
        message=message,
    )
    return waiting, Step.NOTHING


def _unwanted(state: State, seen: Seen, *, patience: Patience, now_s: float) -> tuple[State, Step]:
    if state.condition in (Condition.IDLE, Condition.WAITING):
        return _into(state, Condition.IDLE, now_s=now_s), Step.NOTHING
    if state.condition in (Condition.READY, Condition.UNWELL):
        state = _into(state, Condition.DRAINING, now_s=now_s)
    drained = seen.requests == 0 or now_s - state.since_s >= patience.drain_s
    if state.condition is Condition.DRAINING and not drained:
        return state, Step.NOTHING
    return _into(state, Condition.STOPPING, now_s=now_s), Step.TERMINATE


def _unless_late(
    state: State, seen: Seen, *, patience: Patience, now_s: float
) -> tuple[State, Step]:
    """One that hangs is killed: what it holds is lost, and it is started again once it has ended.

    One that gives tokens does not hang, though it be too busy to say how it is.
    """
    lasted_s = now_s - state.since_s
    idle_s = lasted_s if seen.produced_s is None else min(lasted_s, now_s - seen.produced_s)
    if state.condition is Condition.STARTING and lasted_s > patience.start_s:
        why = f"it was not well {patience.start_s:g} s after its start"
    elif state.condition is Condition.UNWELL and idle_s > patience.unwell_s:
        why = f"it was unwell for {patience.unwell_s:g} s"
    else:
        return state, Step.NOTHING
    if state.message:
        why = f"{why} ({state.message})"
    stopping = _into(state, Condition.STOPPING, now_s=now_s)
    return replace(stopping, message=_with_words(f"{why}, so it was killed", seen)), Step.KILL


def _with_words(what: str, seen: Seen) -> str:
    if seen.first_error:
        what = f"{what}: {seen.first_error}"
    return f"{what}{_LOG_ENDS}{seen.last_words}" if seen.last_words else what


def without_log(message: str) -> str:
    """The message without the end of the log."""
    return message.partition(_LOG_ENDS)[0]


def _into(state: State, condition: Condition, *, now_s: float) -> State:
    if state.condition is condition:
        return state
    return replace(state, condition=condition, since_s=now_s, bad_probes=0)
