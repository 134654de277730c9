"""Requests outlive their stages: restarts, silence, other plans, against scripted stages."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from coordinator_doubles import (
    RANGES,
    Clock,
    ScriptedStages,
    make_dispatcher,
    make_serving,
    see,
    write_checkpoint,
)
from test_coordinator_dispatcher import Bench, drain

from runtime.coordinator.live_request import LiveRequest, RequestFailed
from runtime.protocol.data import Kind, Reason
from runtime.transport.heartbeats import Loss


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(write_checkpoint(tmp_path / "checkpoint"))
    bench.stages.script = counting
    return bench


def counting(prompt: list[int]) -> Iterator[int]:
    """What a model would say: the next token depends on the sequence so far alone."""
    return iter([60 + (len(prompt) + index) % 20 for index in range(300)])


def passes(request: LiveRequest, node: str) -> bool:
    return request.pipeline is not None and node in {
        stage.node for stage in request.pipeline.stages
    }


def undisturbed(tokens: int) -> list[int]:
    return [60 + (10 + index) % 20 for index in range(tokens)]


def assert_whole(request: LiveRequest, *, tokens: int = 20) -> None:
    """Every token once and in order, as without a disturbance."""
    assert [delta.token_id for delta in drain(request)] == undisturbed(tokens)


def test_requests_of_a_restarted_stage_go_on_and_others_notice_nothing(bench: Bench) -> None:
    requests = [bench.submit() for _ in range(3)]
    for _ in range(5):
        bench.stages.step()
    through_d = [request for request in requests if passes(request, "d")]
    assert 0 < len(through_d) < len(requests)
    bench.stages.restart("d")
    assert [request.epoch for request in requests] == [
        1 if request in through_d else 0 for request in requests
    ]
    bench.run()
    for request in requests:
        assert_whole(request)
    bench.assert_everything_is_given_back()


def test_a_stage_that_knows_nothing_of_a_request_gets_it_anew_at_the_next_tick(
    bench: Bench,
) -> None:
    request = bench.submit()
    bench.stages.step()
    bench.stages.refuse((request.id, 0), Reason.UNKNOWN_REQUEST)
    assert request.pipeline is None
    bench.dispatcher.expire()
    assert request.pipeline is not None
    bench.run()
    assert_whole(request)
    bench.assert_everything_is_given_back()


def test_a_stage_that_refuses_for_ever_is_believed_in_the_end(bench: Bench) -> None:
    request = bench.submit()
    while not request.ended:
        bench.stages.refuse((request.id, request.epoch), Reason.WRONG_GENERATION)
        bench.dispatcher.expire()
        assert request.epoch < 1000
    with pytest.raises(RequestFailed, match="is changing to another plan"):
        drain(request)
    bench.assert_everything_is_given_back()


def test_requests_through_a_silent_stage_go_on_elsewhere(bench: Bench) -> None:
    requests = [bench.submit() for _ in range(4)]
    bench.stages.step()
    through_b = [request for request in requests if passes(request, "b")]
    assert 0 < len(through_b) < len(requests)
    bench.stages.freeze("b")
    see(bench.dispatcher, "b", loss=Loss.SILENT)
    assert all(passes(request, "a") for request in requests)
    bench.run()
    for request in requests:
        assert_whole(request)


def test_tokens_of_a_stage_that_wakes_up_late_are_not_taken_twice(bench: Bench) -> None:
    requests = [bench.submit() for _ in range(4)]
    bench.stages.step()
    see(bench.dispatcher, "b", loss=Loss.SILENT)
    see(bench.dispatcher, "b")  # it was only slow, and its tokens of the first epoch still come
    for request in requests:
        if request.epoch == 1:
            bench.stages.emit((request.id, 0), 99)
    bench.run()
    for request in requests:
        assert_whole(request)
    assert bench.dispatcher.requests_running == 0


def test_with_no_way_left_a_request_waits_for_the_stage_and_names_it_when_it_stays_away(
    bench: Bench,
) -> None:
    comes_back, stays_away = bench.submit(), bench.submit()
    bench.stages.step()
    for node in RANGES:
        bench.stages.freeze(node)
    see(bench.dispatcher, *RANGES, loss=Loss.SILENT)
    assert bench.dispatcher.requests_waiting == 2
    bench.stages.thaw()
    see(bench.dispatcher, *RANGES)
    bench.run()
    assert_whole(comes_back)
    assert_whole(stays_away)
    lost = bench.submit()
    see(bench.dispatcher, *RANGES, loss=Loss.SILENT)
    bench.clock.now += 121
    bench.dispatcher.expire()
    with pytest.raises(RequestFailed, match="no word from the stages of a, b, c, d"):
        drain(lost)


def test_requests_go_on_under_a_plan_with_other_pages_once_it_is_up(bench: Bench) -> None:
    checkpoint = Path(bench.serving.plan.checkpoint)
    requests = [bench.submit() for _ in range(3)]
    for _ in range(4):
        bench.stages.step()
    bench.dispatcher.serve(make_serving(checkpoint, generation=8, page_tokens=8))
    assert not bench.stages.nodes_with_pages  # the old plan's stages were told to forget them
    assert bench.dispatcher.requests_waiting == 3
    bench.stages.generation = 8
    bench.stages.report("a", "b", "c", page_tokens=8)
    assert bench.dispatcher.requests_running == 0  # else all would take the first way to be up
    bench.stages.report("d", page_tokens=8)
    bench.run()
    for request in requests:
        assert_whole(request)
    prompts = [message for _, message in bench.stages.sent if message.kind == Kind.PROMPT]
    assert [message.generation for message in prompts] == [7] * 3 + [8] * 3


def test_a_waiting_request_goes_over_behind_the_running_ones(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    bench = Bench(checkpoint, pages=96)
    bench.stages.script = counting
    requests = bench.fill()
    bench.dispatcher.serve(make_serving(checkpoint, generation=8, page_tokens=8))
    bench.stages.generation = 8
    bench.stages.report(pages=96, page_tokens=8)
    bench.run()
    for request in requests:
        assert_whole(request)


def test_what_never_fits_under_the_new_plan_ends_once_its_stages_are_up(bench: Bench) -> None:
    checkpoint = Path(bench.serving.plan.checkpoint)
    request = bench.submit()
    bench.stages.step()
    bench.dispatcher.serve(make_serving(checkpoint, generation=8, page_tokens=8))
    bench.stages.generation = 8
    bench.stages.report("a", "b", "c", pages=2, page_tokens=8)
    assert not request.ended
    bench.stages.report("d", pages=2, page_tokens=8)
    with pytest.raises(RequestFailed, match="more KV cache than any pipeline"):
        drain(request)


def test_a_plan_that_is_taken_away_ends_its_requests(bench: Bench) -> None:
    request = bench.submit()
    bench.dispatcher.serve(None)
    with pytest.raises(RequestFailed, match="the plan was replaced"):
        drain(request)


def test_a_dispatcher_without_a_plan_ticks(tmp_path: Path) -> None:
    dispatcher, _ = make_dispatcher(ScriptedStages(counting), clock=Clock())
    dispatcher.expire()
    assert dispatcher.requests_waiting == 0
