"""The agent's decisions where a generation goes on beside the next, and what a stage says of it."""

from dataclasses import replace

import fake_stage
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.agent.reconcile import (
    HANGS_AFTER_S,
    RETRY_FIRST_S,
    Action,
    AddGeneration,
    Failure,
    KillStage,
    LocalState,
    RunningStage,
    StartStage,
    StopStage,
    after_event,
    look_again_at_s,
    next_action,
    observe,
)
from runtime.protocol.control import DesiredState, PeerAddress, StageAssignment
from runtime.protocol.phases import Phase
from runtime.protocol.stage_pipe import (
    CannotAddEvent,
    LoadingEvent,
    ReadyEvent,
    RetiredEvent,
    StageEvent,
    StatsEvent,
)


def peer(name: str, port: int = 1) -> PeerAddress:
    return PeerAddress(name=name, endpoint=f"tcp://127.0.0.1:{port}", public_key="k" * 40)


def assignment(generation: int, **changes: object) -> StageAssignment:
    values: dict[str, object] = {
        "deployment_id": generation,
        "generation": generation,
        "model_name": "tiny",
        "checkpoint": "/models/tiny",
        "first": generation % 3,
        "end": 4,
        "num_layers": 8,
        "max_context_tokens": 128,
        "peers": (peer("coordinator"), peer(f"node-{generation}")),
    }
    return StageAssignment.model_validate(values | changes)


ONE, TWO, THREE = assignment(1), assignment(2), assignment(3)


MOVED = TWO.model_copy(update={"peers": (peer("coordinator", port=2), peer("coordinator:2"))})


def continues(wanted: StageAssignment | None) -> DesiredState:
    generation = 9 if wanted is None else wanted.generation
    return DesiredState(generation=generation, assignment=wanted, continues=True)


def running(latest: StageAssignment, phase: Phase = Phase.READY, **changes: object) -> RunningStage:
    return replace(
        RunningStage(assignment=latest, phase=phase, ready_s=0.0, heard_s=100.0), **changes
    )


FAILED_TWICE = Failure(assignment=TWO, message="no such tensor", count=2, at_s=99.0)


@pytest.mark.parametrize(
    ("desired", "local", "action"),
    [
        (continues(TWO), running(ONE), AddGeneration(assignment=TWO)),
        (continues(TWO), running(TWO, Phase.LOADING, beside=(ONE,)), None),
        (continues(TWO), running(TWO, beside=(ONE,)), None),
        (continues(THREE), running(TWO, beside=(ONE,)), AddGeneration(assignment=THREE)),
        (
            continues(THREE),
            running(TWO, Phase.LOADING, beside=(ONE,)),
            AddGeneration(assignment=THREE),
        ),
        # a coordinator that moved, or one more, is met without an end of what runs for others
        (continues(MOVED), running(ONE), AddGeneration(assignment=MOVED)),
        # what never served has nothing that could go on
        (continues(TWO), running(ONE, Phase.LOADING, heard_s=None), StopStage()),
        (continues(TWO), running(ONE, Phase.STOPPING), StopStage()),
        # earlier ones are the coordinator's to retire, whatever is wanted of them later
        (DesiredState(generation=2, assignment=TWO), running(TWO, beside=(ONE,)), None),
        (DesiredState(generation=3, assignment=THREE), running(TWO, beside=(ONE,)), StopStage()),
        (DesiredState(generation=9), running(TWO, beside=(ONE,)), StopStage()),
        # a node that the next plan leaves out serves what it has until that is retired
        (continues(None), running(ONE), None),
        (continues(None), running(TWO, Phase.LOADING, beside=(ONE,)), None),
        (continues(None), running(ONE, Phase.IDLE), StopStage()),
        (continues(None), running(ONE, Phase.LOADING, heard_s=None), StopStage()),
        # retired by mistake, or in the course of a change that was not heard of yet
        (continues(TWO), running(TWO, Phase.IDLE), AddGeneration(assignment=TWO)),
        # no room beside
        (continues(TWO), running(TWO, Phase.IDLE, beside=(ONE,), refused=TWO), StopStage()),
        (
            continues(THREE),
            running(TWO, Phase.IDLE, beside=(ONE,), refused=TWO),
            AddGeneration(assignment=THREE),
        ),
    ],
)
def test_the_next_action_at_100_s(
    desired: DesiredState, local: RunningStage, action: Action | None
) -> None:
    assert next_action(desired, LocalState(running=local), now_s=100.0) == action


@pytest.mark.parametrize(
    "changes",
    [
        {"checkpoint": "/models/other"},
        {"model_name": "other"},
        {"page_tokens": 32},
        {"max_context_tokens": 256},
        {"tensor_parallel": 2},
        {"engine": "vllm"},
        {"options": {"prefixes": "forget"}},
    ],
)
def test_what_is_served_by_other_rules_gets_a_process_of_its_own(
    changes: dict[str, object],
) -> None:
    wanted = assignment(2, **changes)
    local = LocalState(running=running(ONE))
    assert next_action(continues(wanted), local, now_s=100.0) == StopStage()
    assert observe(continues(wanted), local, now_s=100.0).phase is Phase.STOPPING


def test_what_cannot_be_read_is_tried_again_later_and_the_others_go_on() -> None:
    refused = CannotAddEvent(generation=2, message="no such tensor", restart_helps=False)
    local = LocalState(running=running(TWO, Phase.LOADING, beside=(ONE,), ready_s=0.0))
    for count in (1, 2):
        local = after_event(local, refused, told={1: ONE, 2: TWO}, now_s=99.0)
        assert local.failure == replace(FAILED_TWICE, count=count)
    again_s = 99.0 + 2 * RETRY_FIRST_S
    assert next_action(continues(TWO), local, now_s=again_s - 0.1) is None
    assert look_again_at_s(continues(TWO), local) == again_s
    assert next_action(continues(TWO), local, now_s=again_s) == AddGeneration(assignment=TWO)
    seen = observe(continues(TWO), local, now_s=100.0)
    assert (seen.phase, seen.also_serving) == (Phase.FAILED, (1,))
    assert seen.message == "no such tensor (failed 2 times; is tried again)"


def test_a_stage_that_hangs_while_another_generation_loads_is_killed() -> None:
    local = LocalState(running=running(TWO, Phase.LOADING, beside=(ONE,), heard_s=100.0))
    hangs_s = 100.0 + HANGS_AFTER_S
    assert look_again_at_s(continues(TWO), local) == hangs_s
    assert next_action(continues(TWO), local, now_s=hangs_s - 1) is None
    assert isinstance(next_action(continues(TWO), local, now_s=hangs_s), KillStage)


def test_what_is_observed_tells_which_generations_go_on() -> None:
    loads = LocalState(running=running(TWO, Phase.LOADING, beside=(ONE,), loaded_ratio=0.5))
    seen = observe(continues(TWO), loads, now_s=100.0)
    assert (seen.generation, seen.phase, seen.loaded_ratio) == (2, Phase.LOADING, 0.5)
    assert (seen.first, seen.end, seen.also_serving) == (TWO.first, TWO.end, (1,))
    ready = observe(continues(TWO), LocalState(running=running(TWO, beside=(ONE,))), now_s=100.0)
    assert (ready.phase, ready.also_serving, ready.loaded_ratio) == (Phase.READY, (1,), None)
    soon = observe(continues(TWO), LocalState(running=running(ONE)), now_s=100.0)
    assert (soon.phase, soon.also_serving, soon.loaded_ratio) == (Phase.LOADING, (1,), 0.0)
    left_out = observe(continues(None), LocalState(running=running(ONE)), now_s=100.0)
    assert (left_out.phase, left_out.also_serving, left_out.first) == (Phase.IDLE, (1,), None)


TOLD = {each.generation: each for each in (ONE, TWO, THREE)}


def heard(local: RunningStage, *events: StageEvent) -> RunningStage:
    state = LocalState(running=local)
    for event in events:
        state = after_event(state, event, told=TOLD, now_s=200.0)
    assert state.running is not None
    return state.running


def test_events_are_of_the_generation_they_name() -> None:
    loads = running(TWO, Phase.LOADING, beside=(ONE,), loaded_ratio=0.0)
    stats = StatsEvent(stats=fake_stage.STATS)
    busy = heard(loads, stats, LoadingEvent(generation=2, done_bytes=1, total_bytes=4))
    assert (busy.phase, busy.loaded_ratio, busy.heard_s) == (Phase.LOADING, 0.25, 200.0)
    old = LoadingEvent(generation=1, done_bytes=3, total_bytes=4)
    assert heard(loads, old).loaded_ratio == 0.0
    ready = heard(loads, ReadyEvent(generation=2, stats=fake_stage.STATS))
    assert (ready.phase, ready.serving) == (Phase.READY, (ONE, TWO))
    assert heard(ready, RetiredEvent(generation=1)).serving == (TWO,)
    assert heard(ready, RetiredEvent(generation=2)).serving == (ONE,)
    overtaken = running(THREE, Phase.LOADING, beside=(ONE,))
    late = heard(overtaken, ReadyEvent(generation=2, stats=fake_stage.STATS))
    assert (late.phase, late.serving) == (Phase.LOADING, (ONE, TWO))
    refusal = CannotAddEvent(generation=2, message="no room", restart_helps=True)
    assert heard(overtaken, refusal) == overtaken
    assert heard(loads, refusal).refused == TWO


states = st.one_of(
    st.just(LocalState()),
    st.builds(
        lambda latest, phase, beside: LocalState(running=running(latest, phase, beside=beside)),
        st.sampled_from([ONE, TWO]),
        st.sampled_from([Phase.LOADING, Phase.READY, Phase.IDLE, Phase.STOPPING]),
        st.sampled_from([(), (THREE,)]),
    ),
)


@given(
    local=states,
    wanted=st.sampled_from([None, ONE, TWO]),
    goes_on=st.booleans(),
    has_room=st.booleans(),
)
def test_repeated_actions_end_in_what_is_wanted(
    local: LocalState, wanted: StageAssignment | None, goes_on: bool, has_room: bool
) -> None:
    generation = 9 if wanted is None else wanted.generation
    desired = DesiredState(generation=generation, assignment=wanted, continues=goes_on)
    for _ in range(5):
        action = next_action(desired, local, now_s=100.0)
        if action is None:
            break
        local = apply(action, local, has_room=has_room)
    assert next_action(desired, local, now_s=100.0) is None
    if wanted is not None:
        assert local.running is not None
        assert local.running.assignment == wanted
        assert local.running.phase in (Phase.LOADING, Phase.READY)
    elif not goes_on:
        assert local.running is None


def apply(action: Action, local: LocalState, *, has_room: bool) -> LocalState:
    """What supervisor and stage do, without a process."""
    if isinstance(action, AddGeneration):
        before = local.running
        assert before is not None
        beside = before.serving
        loads = replace(before, assignment=action.assignment, phase=Phase.LOADING, beside=beside)
        if has_room:
            return LocalState(running=loads, failure=local.failure)
        refusal = CannotAddEvent(
            generation=action.assignment.generation, message="no room", restart_helps=True
        )
        return after_event(LocalState(running=loads), refusal, told=TOLD, now_s=100.0)
    if isinstance(action, StartStage):
        return LocalState(running=running(action.assignment, Phase.LOADING, heard_s=None))
    assert isinstance(action, StopStage)
    return LocalState()
