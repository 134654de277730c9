"""Queue, routes, tokens, failures: the dispatcher against scripted stages."""

from pathlib import Path

import pytest
from coordinator_doubles import RANGES, Clock, ScriptedStages, make_serving, see, write_checkpoint
from dispatcher_bench import EOS, HELLO, Bench, drain, endless

from runtime.coordinator.live_request import Delta, RequestFailed
from runtime.coordinator.refusals import NeverFits, NotServing, QueueFull
from runtime.coordinator.stage_link import StageLink
from runtime.protocol.data import Entry, Kind
from runtime.transport.heartbeats import Loss


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "checkpoint")


@pytest.fixture
def bench(checkpoint: Path) -> Bench:
    return Bench(checkpoint)


def test_a_prompt_goes_to_the_first_stage_with_the_whole_route(bench: Bench) -> None:
    request = bench.submit()
    (peer, message) = bench.stages.sent[0]
    (entry,) = message.entries
    assert request.pipeline is not None
    assert message.kind == Kind.PROMPT
    assert message.generation == 7
    assert peer == request.pipeline.stages[0].node
    assert entry.route is not None
    assert [(hop.node, hop.first, hop.end) for hop in entry.route.hops] == [
        (stage.node, stage.first, stage.end) for stage in request.pipeline.stages
    ]
    assert entry.route.hops[-1].end == 6


def test_tokens_arrive_in_order_and_the_end_frees_every_stage(bench: Bench) -> None:
    requests = [bench.submit(max_tokens=5) for _ in range(3)]
    bench.run()
    for request in requests:
        deltas = drain(request)
        assert [delta.token_id for delta in deltas] == [60, 61, 62, 63, 64]
        assert [delta.finish_reason for delta in deltas] == [None] * 4 + ["length"]
    bench.assert_everything_is_given_back()
    assert len({request.pipeline for request in requests}) > 1


def test_an_end_of_sequence_token_is_counted_but_has_no_text(bench: Bench) -> None:
    bench.stages.script = lambda prompt: [60, EOS]
    request = bench.submit()
    bench.run()
    deltas = drain(request)
    assert deltas[-1] == Delta(token_id=EOS, text="", finish_reason="stop")
    assert request.token_ids == [60, EOS]


def test_a_stop_string_ends_the_request_at_the_stages_too(bench: Bench) -> None:
    text = "one two END three"
    tokenizer = bench.serving.tokenizer
    bench.stages.script = lambda prompt: tokenizer.encode_text(text)
    request = bench.submit(max_tokens=50, stop=("END",))
    bench.run()
    deltas = drain(request)
    assert "".join(delta.text for delta in deltas) == "one two "
    assert deltas[-1].finish_reason == "stop"
    assert len(request.token_ids) == len("one two END")
    bench.assert_everything_is_given_back()


def test_a_client_that_leaves_frees_everything_at_once(bench: Bench) -> None:
    request = bench.submit()
    bench.stages.step()
    bench.dispatcher.end(request)
    bench.dispatcher.end(request)
    bench.assert_everything_is_given_back()


def test_late_tokens_of_a_request_that_left_do_no_harm(bench: Bench) -> None:
    request = bench.submit()
    key = (request.id, 0)
    bench.dispatcher.end(request)
    sent = len(bench.stages.sent)
    bench.stages.emit(key, 60)
    assert len(bench.stages.sent) == sent


def test_a_full_cluster_queues_in_order_then_refuses_with_a_time(checkpoint: Path) -> None:
    bench = Bench(checkpoint, pages=96)
    accepted = bench.fill(max_tokens=30)
    with pytest.raises(QueueFull, match=r"2 requests are waiting .*; try again in 5 s"):
        bench.submit(max_tokens=30)
    waiting = [request for request in accepted if request.pipeline is None]
    assert bench.dispatcher.requests_waiting == len(waiting) == 2
    listed = bench.dispatcher.oldest_requests(3)
    assert listed == [*waiting, accepted[0]], "those that wait longest, then those that run longest"
    assert bench.dispatcher.oldest_requests(1) == waiting[:1]
    assert bench.stats.requests_rejected_total == 1
    bench.clock.now += 3
    bench.dispatcher.end(accepted[0])
    assert waiting[0].pipeline is not None
    assert waiting[0].queue_s == pytest.approx(3)
    bench.run()
    while bench.dispatcher.requests_running:
        bench.run()
    for request in accepted[1:]:
        assert len(drain(request)) == 30
    bench.assert_everything_is_given_back()
    bench.fill()  # 5 ended in the window of 10 s: the third in line is due in 6 s
    with pytest.raises(QueueFull, match="try again in 6 s"):
        bench.submit()


def test_another_key_still_finds_a_place_and_its_turn_comes_before_the_second_of_the_first(
    checkpoint: Path,
) -> None:
    bench = Bench(checkpoint, pages=96)
    accepted = bench.fill()
    running = [request for request in accepted if request.pipeline is not None]
    other = bench.submit(owner="other")
    later = bench.submit(owner="third", priority=1)
    with pytest.raises(QueueFull, match="4 requests are waiting already, 1 of them of this"):
        bench.submit(owner="other")
    bench.dispatcher.end(running[0])
    assert other.pipeline is not None
    assert [request.pipeline is None for request in (*accepted[-2:], later)] == [True] * 3


def test_a_waiting_client_that_leaves_makes_room_in_the_queue(checkpoint: Path) -> None:
    bench = Bench(checkpoint, pages=96)
    accepted = bench.fill()
    bench.dispatcher.end(accepted[-1])
    assert bench.dispatcher.requests_waiting == 1
    bench.submit()


def test_a_request_that_no_pipeline_can_ever_hold_is_refused(checkpoint: Path) -> None:
    bench = Bench(checkpoint, pages=10)
    with pytest.raises(NeverFits, match="10 prompt tokens and about 20 output tokens"):
        bench.submit()


def test_an_answer_longer_than_predicted_keeps_its_books_right(bench: Bench) -> None:
    request = bench.submit(max_tokens=200)
    before = sum(bench.serving.kv.used_token_layers(node) for node in RANGES)
    for _ in range(100):
        bench.stages.step()
    assert sum(bench.serving.kv.used_token_layers(node) for node in RANGES) == (
        pytest.approx(before * 112 / 32)  # 110 tokens in pages of 4, against 30
    )
    bench.dispatcher.end(request)
    bench.assert_everything_is_given_back()


def test_nothing_is_served_before_every_stage_reported(checkpoint: Path) -> None:
    bench = Bench(checkpoint)
    bench.dispatcher.serve(None)
    with pytest.raises(NotServing, match="no plan is deployed"):
        bench.submit()
    bench.serving = make_serving(checkpoint)
    bench.dispatcher.serve(bench.serving)
    bench.stages.report("a", "c")
    with pytest.raises(NotServing, match="waiting for the stages of: b, d"):
        bench.submit()
    bench.stages.report("b", "d")
    bench.submit()


@pytest.mark.parametrize("wrong", [{"generation": 6}, {"page_tokens": 16}])
def test_a_status_that_does_not_fit_the_plan_does_not_count(
    checkpoint: Path, wrong: dict[str, int]
) -> None:
    bench = Bench(checkpoint)
    bench.serving = make_serving(checkpoint)
    bench.dispatcher.serve(bench.serving)
    bench.stages.generation = wrong.get("generation", 7)
    bench.stages.report(page_tokens=wrong.get("page_tokens", 4))
    assert bench.serving.missing_nodes() == tuple(sorted(RANGES))


def test_a_silent_node_is_avoided_until_it_answers_again(bench: Bench) -> None:
    see(bench.dispatcher, "b", loss=Loss.SILENT)
    for _ in range(6):
        request = bench.submit()
        assert request.pipeline is not None
        assert request.pipeline.stages[0].node == "a"
    see(bench.dispatcher, "a", loss=Loss.SILENT)
    assert (bench.dispatcher.requests_running, bench.dispatcher.requests_waiting) == (0, 6)
    see(bench.dispatcher, "b")
    assert (bench.dispatcher.requests_running, bench.dispatcher.requests_waiting) == (6, 0)


def test_a_plan_of_another_model_ends_running_and_waiting_requests(checkpoint: Path) -> None:
    bench = Bench(checkpoint, pages=96)
    requests = bench.fill()
    bench.dispatcher.serve(make_serving(checkpoint, generation=8, model_name="another"))
    for request in requests:
        with pytest.raises(RequestFailed, match="the plan was replaced"):
            drain(request)
    bench.assert_everything_is_given_back()
    with pytest.raises(NotServing):
        bench.submit()


@pytest.mark.parametrize("token", [-1, 261])
def test_a_token_outside_the_vocabulary_is_an_error(bench: Bench, token: int) -> None:
    request = bench.submit()
    bench.stages.emit((request.id, 0), token)
    with pytest.raises(RequestFailed, match=f"sent token {token}"):
        drain(request)


def test_a_stage_that_never_answers_is_given_up_after_the_timeout(bench: Bench) -> None:
    request = bench.submit()
    bench.clock.now += 119
    bench.stages.report()
    bench.dispatcher.expire()
    assert bench.dispatcher.requests_running == 1
    bench.clock.now += 2
    bench.dispatcher.expire()
    with pytest.raises(RequestFailed, match="no token came for 120 s"):
        drain(request)
    bench.assert_everything_is_given_back()


def test_a_request_that_waits_too_long_is_told_so(checkpoint: Path) -> None:
    bench = Bench(checkpoint, pages=96)
    while not bench.dispatcher.requests_waiting:
        request = bench.submit()
    for _ in range(2):
        bench.clock.now += 61
        bench.stages.step()  # the others get tokens, and keep their pages
    bench.dispatcher.expire()
    with pytest.raises(RequestFailed, match="no pipeline became free within 120 s"):
        drain(request)


def test_a_node_without_an_address_does_not_stop_the_others(bench: Bench) -> None:
    bench.stages.unreachable = {"b"}
    requests = [bench.submit(max_tokens=2) for _ in range(6)]
    bench.run()
    assert sum(len(request.token_ids) == 2 for request in requests) == 4


def test_requests_of_an_earlier_coordinator_are_released_at_every_stage(bench: Bench) -> None:
    request = bench.submit()
    key = (request.id, 0)
    restarted = Bench(Path(bench.serving.plan.checkpoint))
    bench.stages.dispatcher = restarted.dispatcher
    bench.stages.emit(key, 60)
    bench.stages.emit(key, 61)
    released = [peer for peer, message in restarted.stages.sent if message.kind == Kind.RELEASE]
    assert sorted(released) == sorted(RANGES)


def test_ttft_includes_the_queue_and_gaps_are_counted_apart(bench: Bench) -> None:
    bench.submit(max_tokens=3)
    for _ in range(3):
        bench.clock.now += 0.5
        bench.stages.step()
    assert bench.stats.ttft_s.percentile(0.5) == pytest.approx(0.5)
    assert bench.stats.itl_s.percentile(0.95) == pytest.approx(0.5)
    assert bench.stats.prompt_tokens_total == len(HELLO)
    assert bench.stats.output_tokens_total == 3
    assert bench.stats.node_tokens_total["a"] == len(HELLO) + 3
    assert bench.stats.edge_tokens_total["source->a"] == len(HELLO) + 3
    bench.clock.now += 11
    assert bench.stats.ttft_s.percentile(0.5) is None


def test_a_release_that_was_lost_is_sent_again_while_tokens_still_come(bench: Bench) -> None:
    request = bench.submit()
    bench.stages.step()
    bench.dispatcher.end(request)
    bench.stages.sent.clear()
    bench.stages.emit((request.id, 0), 65)  # was under way when the release went out
    assert bench.stages.sent == []
    bench.clock.now += 5.0
    for _ in range(3):
        bench.stages.emit((request.id, 0), 65)
    released = [peer for peer, message in bench.stages.sent if message.kind == Kind.RELEASE]
    assert sorted(released) == sorted(RANGES)


def test_only_so_many_released_requests_are_remembered(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.coordinator.stage_link.RELEASED_KEPT", 3)
    stages, serving = ScriptedStages(endless), make_serving(checkpoint)
    link = StageLink(transport=stages, clock=Clock())
    for request, is_news in [(1, True), (2, True), (1, False), (3, True), (4, True), (1, True)]:
        stages.sent.clear()
        stray = Entry(request=request, epoch=0, position=9, n_tokens=1, hop=0)
        link.release_stray(serving, "a", stray)
        assert bool(stages.sent) is is_news
