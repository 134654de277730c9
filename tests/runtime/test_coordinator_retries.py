"""What becomes of requests that stages refuse, preempt or lose tokens of."""

from pathlib import Path

import pytest
from coordinator_doubles import write_checkpoint
from dispatcher_bench import EOS, HELLO, Bench, drain

from planner.routers.base import RequestSize
from runtime.coordinator.live_request import RequestFailed
from runtime.protocol.data import Reason


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "checkpoint")


@pytest.fixture
def bench(checkpoint: Path) -> Bench:
    return Bench(checkpoint)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (Reason.STAGE_ERROR, "failed while computing"),
        (Reason.NOT_A_NUMBER, "are no numbers"),
    ],
)
def test_a_refusal_by_a_stage_ends_the_request_with_its_reason(
    bench: Bench, reason: Reason, words: str
) -> None:
    request = bench.submit()
    bench.stages.step()
    bench.stages.refuse((request.id, 0), reason)
    with pytest.raises(RequestFailed, match=words):
        drain(request)
    bench.assert_everything_is_given_back()
    assert bench.stats.requests_failed_total == 1


def test_without_kv_pages_a_request_is_tried_once_more_in_a_fresh_epoch(bench: Bench) -> None:
    request = bench.submit(max_tokens=3)
    bench.stages.refuse((request.id, 0), Reason.NO_KV_PAGES)
    assert request.epoch == 1
    bench.run()
    assert len(drain(request)) == 3
    bench.assert_everything_is_given_back()


def test_the_second_refusal_for_lack_of_pages_is_final(bench: Bench) -> None:
    request = bench.submit()
    bench.stages.refuse((request.id, 0), Reason.NO_KV_PAGES)
    bench.stages.refuse((request.id, 1), Reason.NO_KV_PAGES)
    with pytest.raises(RequestFailed, match="ran out of KV cache pages"):
        drain(request)
    bench.assert_everything_is_given_back()


def test_one_that_was_turned_away_for_others_is_tried_once_more_when_they_are_gone(
    bench: Bench,
) -> None:
    request = bench.submit(max_tokens=3)
    first = bench.stages.routes[request.id, 0].hops[0].node
    bench.serving.kv.set_elsewhere(first, token_layers=100)
    bench.stages.refuse((request.id, 0), Reason.NO_KV_PAGES)
    bench.stages.report()
    bench.serving.kv.set_elsewhere(first, token_layers=0)
    bench.stages.refuse((request.id, request.epoch), Reason.NO_KV_PAGES)
    assert request.epoch == 2
    bench.run()
    assert len(drain(request)) == 3
    bench.assert_everything_is_given_back()


def test_the_retry_waits_for_a_release_when_others_run(bench: Bench) -> None:
    other, request = bench.submit(max_tokens=2), bench.submit(max_tokens=2)
    bench.stages.refuse((request.id, 0), Reason.NO_KV_PAGES)
    assert bench.dispatcher.requests_waiting == 1
    bench.run()
    assert len(drain(other)) == 2
    bench.run()
    assert len(drain(request)) == 2


def test_a_request_refused_for_lack_of_pages_waits_as_long_as_others_run(bench: Bench) -> None:
    other, request = bench.submit(max_tokens=2), bench.submit(max_tokens=2)
    bench.stages.emit((other.id, 0), 60)
    bench.stages.refuse((request.id, 0), Reason.PREFIX_GONE)  # so this is not its first epoch
    bench.stages.refuse((request.id, 1), Reason.NO_KV_PAGES)
    assert bench.dispatcher.requests_waiting == 1
    bench.run()
    bench.run()
    assert len(drain(request)) == 2


def test_a_preempted_request_goes_on_from_its_tokens(bench: Bench) -> None:
    request = bench.submit(max_tokens=5)
    bench.stages.emit((request.id, 0), 70)
    bench.stages.emit((request.id, 0), 71)
    bench.stages.refuse((request.id, 0), Reason.PREEMPTED)
    route = bench.stages.routes[request.id, 1]
    assert route.prompt_tokens == len(HELLO) + 2
    assert route.sampling.max_tokens == 3
    bench.run()
    assert [delta.token_id for delta in drain(request)] == [70, 71, 60, 61, 62]
    bench.assert_everything_is_given_back()


def test_a_preempted_request_that_has_outgrown_every_pipeline_ends_at_once(
    checkpoint: Path,
) -> None:
    bench = Bench(checkpoint, pages=96)
    request = bench.submit(max_tokens=200)
    while len(request.token_ids) < 120:
        bench.stages.step()
    bench.stages.refuse((request.id, 0), Reason.PREEMPTED)
    with pytest.raises(RequestFailed, match="130 tokens so far need more KV cache than any"):
        drain(request)
    assert request.outcome == "kv_capacity_exceeded"
    bench.assert_everything_is_given_back()


def test_a_preempted_request_that_fits_but_for_its_prediction_goes_on(checkpoint: Path) -> None:
    bench = Bench(checkpoint, pages=36)  # room for 36 tokens on the longest stage
    request = bench.submit(max_tokens=200)
    while len(request.token_ids) < 10:
        bench.stages.step()
    bench.stages.script = lambda prompt: [60, EOS]
    bench.stages.refuse((request.id, 0), Reason.PREEMPTED)
    assert not bench.serving.router.can_ever_serve(
        RequestSize(prompt_tokens=20, predicted_output_tokens=20)
    )
    bench.run()
    assert drain(request)[-1].finish_reason == "stop"
    bench.assert_everything_is_given_back()


def test_what_penalties_count_is_sent_along_when_a_request_goes_on(bench: Bench) -> None:
    request = bench.submit(max_tokens=5, presence_penalty=1.0, repetition_penalty=1.5)
    assert bench.stages.routes[request.id, 0].sampling.emitted_ids == ()
    bench.stages.emit((request.id, 0), 70)
    bench.stages.refuse((request.id, 0), Reason.PREEMPTED)
    sampling = bench.stages.routes[request.id, 1].sampling
    assert sampling.emitted_ids == (70,)
    assert sampling.prompt_ids == tuple(HELLO)


@pytest.mark.parametrize(("asked", "left"), [(4, 3), (1, 0), (0, 0)])
def test_a_request_that_goes_on_owes_only_what_is_left_of_min_tokens(
    bench: Bench, asked: int, left: int
) -> None:
    request = bench.submit(max_tokens=5, min_tokens=asked)
    bench.stages.emit((request.id, 0), 70)
    bench.stages.refuse((request.id, 0), Reason.PREEMPTED)
    assert bench.stages.routes[request.id, 1].sampling.min_tokens == left


def test_a_request_whose_prefix_has_gone_is_sent_again_at_once(bench: Bench) -> None:
    other, request = bench.submit(max_tokens=2), bench.submit(max_tokens=2)
    bench.stages.refuse((request.id, 0), Reason.PREFIX_GONE)
    assert (request.id, 1) in bench.stages.routes
    bench.run()
    assert len(drain(other)) == len(drain(request)) == 2
    bench.assert_everything_is_given_back()


def test_frames_of_an_earlier_epoch_are_ignored(bench: Bench) -> None:
    request = bench.submit(max_tokens=3)
    bench.stages.refuse((request.id, 0), Reason.NO_KV_PAGES)
    bench.stages.emit((request.id, 0), 99)
    bench.stages.refuse((request.id, 0), Reason.STAGE_ERROR)
    bench.run()
    assert [delta.token_id for delta in drain(request)] == [60, 61, 62]


def test_a_duplicate_token_is_ignored(bench: Bench) -> None:
    request = bench.submit()
    key = (request.id, 0)
    bench.stages.emit(key, 60)
    bench.stages.emit(key, 61, position=len(HELLO))
    assert request.token_ids == [60]


def test_a_token_that_was_lost_on_the_way_is_made_again(bench: Bench) -> None:
    bench.stages.script = lambda prompt: [60 + (len(prompt) + index) % 20 for index in range(300)]
    request = bench.submit()
    bench.stages.step()
    bench.stages.emit((request.id, 0), 62, position=len(HELLO) + 2)
    assert request.epoch == 1
    bench.run()
    assert [delta.token_id for delta in drain(request)] == [
        60 + (10 + index) % 20 for index in range(20)
    ]
    bench.assert_everything_is_given_back()


def test_a_stage_that_leaves_tokens_out_for_ever_ends_the_request(bench: Bench) -> None:
    request = bench.submit()
    for epoch in range(51):
        bench.stages.emit((request.id, epoch), 62, position=len(HELLO) + 2)
    with pytest.raises(RequestFailed, match="position 12 where position 10"):
        drain(request)
    bench.assert_everything_is_given_back()
