"""A stage of several ranks as its agent sees it: one process, its children, and its messages."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from ended import has_ended
from test_stage_process import (
    ENDS_WITHIN_S,
    Members,
    StageProcess,
    checkpoint,
    failure,
    heard,
    prompt_message,
    start,
)

from runtime.models.reference import greedy_tokens
from runtime.protocol.data import Flag, Kind
from runtime.protocol.stage_pipe import FailedEvent, LoadingEvent, ReadyEvent, StageLaunch
from runtime.transport.zmq_transport import ZmqTransport

__all__ = ["checkpoint", "start"]  # fixtures

pytestmark = pytest.mark.processes


def shared(launch: StageLaunch, ranks: int) -> StageLaunch:
    degree = {"tensor_parallel": ranks}
    return launch.model_copy(update={"assignment": launch.assignment.model_copy(update=degree)})


def ranks_of(stage: StageProcess) -> list[psutil.Process]:
    found = []
    for child in psutil.Process(stage.process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # what libraries run for a moment
            if "spawn_main" in " ".join(child.cmdline()):
                found.append(child)
    return found


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + ENDS_WITHIN_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_stage_of_two_ranks_answers_as_the_whole_model(
    checkpoint: Path, tmp_path: Path, start: Callable[[bytes], StageProcess]
) -> None:
    members = Members(tmp_path, "a", "b")
    stages = [
        start(shared(members.launch(checkpoint, "a", 0, 3), 2).to_line()),
        start(members.launch(checkpoint, "b", 1, 4).to_line()),
    ]
    coordinator = ZmqTransport(
        name="coordinator",
        bind=members.endpoint("coordinator"),
        keys=members.keys["coordinator"],
        peers=members.peers,
    )
    try:
        for stage in stages:
            stage.until(ReadyEvent)
        ranks = ranks_of(stages[0])
        assert len(ranks) == 1
        prompt = list(range(10, 50))
        coordinator.send("a", prompt_message(prompt))
        tokens: list[int] = []
        for message in heard(coordinator):
            if message.kind == Kind.SAMPLED:
                tokens.append(int(np.frombuffer(message.payload, dtype="<i4")[0]))
                if Flag.FINISHED in message.entries[0].flags:
                    break
        assert tokens == greedy_tokens(checkpoint, prompt_token_ids=prompt, max_tokens=12)
        assert [stage.stop() for stage in stages] == [0, 0]
        assert all(map(has_ended, ranks))
    finally:
        coordinator.close()


@pytest.mark.parametrize(
    "moment",
    [
        ReadyEvent,
        *(pytest.param(moment, marks=pytest.mark.long) for moment in (LoadingEvent, None)),
    ],
)
def test_a_rank_that_dies_ends_the_stage_with_a_message(
    checkpoint: Path,
    tmp_path: Path,
    start: Callable[[bytes], StageProcess],
    moment: type[LoadingEvent] | type[ReadyEvent] | None,
) -> None:
    """Before the ranks meet, while they load, and when they serve."""
    stage = start(shared(Members(tmp_path, "a").launch(checkpoint, "a", 0, 4), 2).to_line())
    if moment is None:
        wait_for(lambda: ranks_of(stage))
    else:
        stage.until(moment)
    ranks_of(stage)[0].kill()
    event = stage.until(FailedEvent)
    assert isinstance(event, FailedEvent)
    assert "rank 1 ended" in event.message
    assert stage.process.wait(ENDS_WITHIN_S) == 1


def test_the_ranks_end_with_a_stage_that_is_killed(
    checkpoint: Path, tmp_path: Path, start: Callable[[bytes], StageProcess]
) -> None:
    stage = start(shared(Members(tmp_path, "a").launch(checkpoint, "a", 0, 4), 2).to_line())
    stage.until(ReadyEvent)
    (rank,) = ranks_of(stage)
    stage.process.kill()
    wait_for(lambda: has_ended(rank))


def test_a_degree_that_heads_or_memory_do_not_allow_is_refused(
    checkpoint: Path, tmp_path: Path
) -> None:
    launch = Members(tmp_path, "a").launch(checkpoint, "a", 0, 4)
    assert "cannot be dealt to 3 ranks" in failure(shared(launch, 3).to_line())
    little = launch.model_copy(update={"memory_budget_bytes": 300_000})
    assert "memory budget of 150000 bytes" in failure(shared(little, 2).to_line())
