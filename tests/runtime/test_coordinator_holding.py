"""New requests wait for the stages of a plan that clients could ask before, instead of a refusal.

Where two plans cannot run side by side (here for their pages), and after the coordinator's restart.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from coordinator_doubles import (
    Clock,
    ScriptedStages,
    make_dispatcher,
    make_serving,
    write_checkpoint,
)
from test_coordinator_dispatcher import HELLO, Bench, drain

from runtime.coordinator.live_request import LiveRequest, RequestFailed
from runtime.coordinator.refusals import NotServing, QueueFull
from runtime.protocol.data import Sampling

PAGES_OF_8 = 8


def answer(prompt: list[int]) -> Iterator[int]:
    return iter([60 + (len(prompt) + index) % 20 for index in range(300)])


class Held(Bench):
    """Generation 7 was up; generation 8, with other pages, is not yet."""

    def __init__(self, checkpoint: Path) -> None:
        super().__init__(checkpoint)
        self.stages.script = answer
        self.serving = make_serving(checkpoint, generation=8, page_tokens=PAGES_OF_8)
        self.dispatcher.serve(self.serving)
        self.stages.generation = 8

    def come_up(self, *, pages: int = 10_000) -> None:
        self.stages.report(page_tokens=PAGES_OF_8, pages=pages)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "checkpoint")


@pytest.fixture
def held(checkpoint: Path) -> Held:
    return Held(checkpoint)


def test_a_request_that_comes_while_the_next_plan_loads_is_answered_under_it(held: Held) -> None:
    request = held.submit(max_tokens=4)
    held.run()
    assert held.dispatcher.requests_waiting == 1
    held.come_up()
    held.run()
    assert [delta.token_id for delta in drain(request)] == [70, 71, 72, 73]
    held.assert_everything_is_given_back()


def test_a_plan_after_a_plan_that_never_came_up_lets_nobody_wait(checkpoint: Path) -> None:
    dispatcher, _ = make_dispatcher(ScriptedStages(answer), clock=Clock())
    dispatcher.serve(make_serving(checkpoint))
    dispatcher.serve(make_serving(checkpoint, generation=8))
    with pytest.raises(NotServing, match="waiting for the stages of: a, b, c, d"):
        dispatcher.plans.open()


def test_a_third_plan_lets_them_wait_too(held: Held, checkpoint: Path) -> None:
    first = held.submit(max_tokens=4)
    held.serving = make_serving(checkpoint, generation=9, page_tokens=PAGES_OF_8)
    held.dispatcher.serve(held.serving)
    second = held.submit(max_tokens=4)
    held.stages.generation = 9
    held.come_up()
    held.run()
    assert len(drain(first)) == len(drain(second)) == 4


def test_a_plan_of_another_model_lets_nobody_wait(held: Held, checkpoint: Path) -> None:
    held.serving = make_serving(checkpoint, generation=9, model_name="another")
    held.dispatcher.serve(held.serving)
    with pytest.raises(NotServing, match="waiting for the stages"):
        held.submit()


def test_the_clients_of_a_coordinator_that_was_restarted_wait_for_its_stages(
    checkpoint: Path,
) -> None:
    stages = ScriptedStages(answer)
    dispatcher, _ = make_dispatcher(stages, clock=Clock())
    serving = make_serving(checkpoint)
    dispatcher.serve(serving, was_served=True)
    request = dispatcher.submit(
        dispatcher.plans.open(),
        prompt_ids=HELLO,
        sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=1, max_tokens=3),
        stop_strings=(),
    )
    stages.report("a", "b", "c")
    assert request.pipeline is None
    stages.report("d")
    while stages.step():
        pass
    assert len(drain(request)) == 3


def test_only_as_many_wait_as_the_plan_says(held: Held) -> None:
    held.submit()
    held.submit()
    with pytest.raises(QueueFull):
        held.submit()


def test_what_no_pipeline_of_the_next_plan_can_hold_ends_once_that_is_known(held: Held) -> None:
    request = held.submit()
    held.come_up(pages=2)
    assert code_of(request) == "kv_capacity_exceeded"


def test_nobody_waits_longer_than_the_request_timeout(held: Held) -> None:
    request = held.submit()
    held.clock.now += 121
    held.dispatcher.expire()
    assert code_of(request) == "timeout"


def code_of(request: LiveRequest) -> str:
    with pytest.raises(RequestFailed) as failed:
        drain(request)
    return failed.value.code
