"""The agent's decisions: a table, and that repeating them leads to what is wanted."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.agent.reconcile import (
    HANGS_AFTER_S,
    RETRY_LIMIT_S,
    SILENT_AFTER_S,
    STEADY_AFTER_S,
    Action,
    Failure,
    KillStage,
    LocalState,
    RunningStage,
    StartStage,
    StopStage,
    after_failure,
    look_again_at_s,
    next_action,
    observe,
    retry_at_s,
)
from runtime.protocol.control import DesiredState, ObservedState, StageAssignment
from runtime.protocol.phases import Phase


def assignment(generation: int, *, first: int = 0) -> StageAssignment:
    return StageAssignment(
        deployment_id=1,
        generation=generation,
        model_name="tiny",
        checkpoint="/models/tiny",
        first=first,
        end=first + 4,
        num_layers=8,
        max_context_tokens=128,
        peers=(),
    )


def wants(generation: int, *, first: int = 0) -> DesiredState:
    return DesiredState(generation=generation, assignment=assignment(generation, first=first))


def runs(generation: int, phase: Phase = Phase.READY, *, ready_s: float = 0.0) -> LocalState:
    return LocalState(
        running=RunningStage(assignment=assignment(generation), phase=phase, ready_s=ready_s)
    )


def failed(generation: int, *, count: int, at_s: float) -> LocalState:
    return LocalState(
        failure=Failure(
            assignment=assignment(generation), message="no room", count=count, at_s=at_s
        )
    )


NOTHING = DesiredState(generation=9)


@pytest.mark.parametrize(
    ("desired", "local", "action"),
    [
        (NOTHING, LocalState(), None),
        (NOTHING, runs(1), StopStage()),
        (NOTHING, failed(1, count=3, at_s=0.0), None),
        (wants(2), LocalState(), StartStage(assignment=assignment(2))),
        (wants(2), runs(2), None),
        (wants(2), runs(2, Phase.LOADING), None),
        (wants(2), runs(1), StopStage()),
        (wants(2), runs(1, Phase.LOADING), StopStage()),
        (wants(2), runs(3), StopStage()),  # a step back is followed too
        (wants(2, first=1), runs(2), StopStage()),
        (wants(2), failed(1, count=9, at_s=100.0), StartStage(assignment=assignment(2))),
        (wants(2), failed(2, count=1, at_s=99.5), None),
        (wants(2), failed(2, count=1, at_s=99.0), StartStage(assignment=assignment(2))),
        (wants(2), failed(2, count=4, at_s=93.0), None),
        (wants(2), failed(2, count=4, at_s=92.0), StartStage(assignment=assignment(2))),
        (wants(2), failed(2, count=10**6, at_s=100.0 - RETRY_LIMIT_S + 1), None),
        (
            wants(2),
            failed(2, count=10**6, at_s=100.0 - RETRY_LIMIT_S),
            StartStage(assignment=assignment(2)),
        ),
    ],
)
def test_the_next_action_at_100_s(
    desired: DesiredState, local: LocalState, action: Action | None
) -> None:
    assert next_action(desired, local, now_s=100.0) == action


def apply(action: Action, local: LocalState, *, fails: bool, now_s: float) -> LocalState:
    """What the supervisor does, without a process."""
    if isinstance(action, StopStage):
        return LocalState()
    running = RunningStage(assignment=action.assignment, phase=Phase.LOADING)
    local = LocalState(running=running, failure=local.failure)
    return after_failure(local, message="no room", now_s=now_s) if fails else local


desired_states = st.one_of(
    st.builds(lambda generation: DesiredState(generation=generation), st.integers(0, 3)),
    st.builds(lambda generation: wants(generation), st.integers(1, 3)),
)
local_states = st.one_of(
    st.just(LocalState()),
    st.builds(runs, st.integers(1, 3), st.sampled_from([Phase.LOADING, Phase.READY])),
    st.builds(
        lambda generation, count, at_s: failed(generation, count=count, at_s=at_s),
        st.integers(1, 3),
        st.integers(1, 30),
        st.floats(0, 1000),
    ),
)


@given(desired=desired_states, local=local_states, failures=st.integers(0, 8))
def test_repeated_actions_end_in_what_is_wanted(
    desired: DesiredState, local: LocalState, failures: int
) -> None:
    now_s = 0.0
    for _ in range(failures + 4):
        action = next_action(desired, local, now_s=now_s)
        if action is None:
            retry_s = retry_at_s(desired.assignment, local)
            if retry_s is None:
                break
            assert retry_s - now_s <= 1000 + RETRY_LIMIT_S
            now_s = max(now_s, retry_s)
            action = next_action(desired, local, now_s=now_s)
            assert action is not None
        fails = failures > 0 and isinstance(action, StartStage)
        failures -= fails
        local = apply(action, local, fails=fails, now_s=now_s)
    assert next_action(desired, local, now_s=now_s) is None
    held = None if local.running is None else local.running.assignment
    assert held == desired.assignment


def test_failures_in_a_row_are_counted_until_a_stage_was_steady() -> None:
    local = after_failure(runs(1, ready_s=0.0), message="a", now_s=1.0)
    assert local.failure is not None
    assert local.failure.count == 1
    again = LocalState(running=runs(1, ready_s=2.0).running, failure=local.failure)
    assert after_failure(again, message="b", now_s=3.0).failure == Failure(
        assignment=assignment(1), message="b", count=2, at_s=3.0
    )
    steady = after_failure(again, message="c", now_s=2.0 + STEADY_AFTER_S).failure
    assert steady is not None
    assert steady.count == 1
    other = LocalState(running=runs(2).running, failure=local.failure)
    fresh = after_failure(other, message="d", now_s=3.0).failure
    assert fresh is not None
    assert fresh.count == 1
    with pytest.raises(ValueError, match="no stage was running"):
        after_failure(LocalState(), message="e", now_s=0.0)


def test_what_is_observed_names_the_generation_acted_on() -> None:
    assert observe(NOTHING, LocalState(), now_s=0.0) == ObservedState(
        generation=9, phase=Phase.IDLE
    )
    assert observe(wants(2), LocalState(), now_s=0.0).phase is Phase.LOADING
    ready = observe(wants(2), runs(2), now_s=0.0)
    assert (ready.generation, ready.phase, ready.first, ready.end) == (2, Phase.READY, 0, 4)
    stopping = observe(wants(2), runs(1, Phase.STOPPING), now_s=0.0)
    assert (stopping.generation, stopping.phase) == (2, Phase.STOPPING)
    assert stopping.message == "stopping generation 1"
    bad = observe(wants(2), failed(2, count=1, at_s=0.0), now_s=0.0)
    assert (bad.phase, bad.message) == (Phase.FAILED, "no room")
    assert "failed 3 times" in observe(wants(2), failed(2, count=3, at_s=0.0), now_s=0.0).message
    assert observe(wants(3), failed(2, count=3, at_s=0.0), now_s=0.0).phase is Phase.LOADING


def test_why_it_failed_is_told_while_it_is_tried_again() -> None:
    failure = failed(2, count=1, at_s=0.0).failure
    again = replace(runs(2, Phase.LOADING), failure=failure)
    assert observe(wants(2), again, now_s=1.0).message == "tried again after: no room"
    assert observe(wants(2), replace(runs(2), failure=failure), now_s=1.0).message == ""
    other = replace(runs(3, Phase.LOADING), failure=failure)
    assert observe(wants(3), other, now_s=1.0).message == ""


def test_a_stage_that_still_runs_an_older_generation_is_never_told_as_ready() -> None:
    """Between a new desired state and the stop, READY would belong to the old layers."""
    assert observe(wants(2), runs(1), now_s=0.0).phase is Phase.STOPPING


def silent(*, since_s: float, phase: Phase = Phase.READY) -> LocalState:
    running = RunningStage(assignment=assignment(2), phase=phase, ready_s=0.0, heard_s=since_s)
    return LocalState(running=running)


def test_a_stage_that_lives_but_says_nothing_is_told_and_at_last_killed() -> None:
    local = silent(since_s=100.0)
    quiet_s, hangs_s = 100.0 + SILENT_AFTER_S, 100.0 + HANGS_AFTER_S
    assert observe(wants(2), local, now_s=quiet_s).message == ""
    said = observe(wants(2), local, now_s=quiet_s + 1)
    assert said.phase is Phase.READY
    assert "said nothing for over 10 s" in said.message
    assert next_action(wants(2), local, now_s=hangs_s - 1) is None
    assert look_again_at_s(wants(2), local) == hangs_s
    action = next_action(wants(2), local, now_s=hangs_s)
    assert isinstance(action, KillStage)
    assert "hung" in action.message
    assert next_action(wants(3), local, now_s=hangs_s) == StopStage()


def test_a_stage_that_loads_for_long_does_not_hang() -> None:
    local = runs(2, Phase.LOADING)
    assert next_action(wants(2), local, now_s=1e9) is None
    assert look_again_at_s(wants(2), local) is None
