"""What the coordinator does when it is told that a stage's process is lost, or back."""

from pathlib import Path

import pytest
from coordinator_doubles import RANGES, make_serving
from test_coordinator_recovery import Bench, assert_whole, bench, passes

from runtime.transport.heartbeats import Loss, PeerEvent

__all__ = ["bench"]  # a fixture


def lost(node: str, loss: Loss = Loss.ENDED) -> PeerEvent:
    return PeerEvent(peer=node, loss=loss, silent_s=0.05)


def there(*nodes: str) -> list[PeerEvent]:
    return [PeerEvent(peer=node, loss=None, silent_s=0.0) for node in nodes or RANGES]


def see(bench: Bench, *peer_events: PeerEvent) -> None:
    for peer_event in peer_events:
        bench.dispatcher.see(peer_event)


@pytest.mark.parametrize("loss", list(Loss))
def test_requests_of_a_lost_stage_go_on_elsewhere_at_once(
    bench: Bench, loss: Loss, caplog: pytest.LogCaptureFixture
) -> None:
    see(bench, *there())
    requests = [bench.submit() for _ in range(3)]
    for _ in range(5):
        bench.stages.step()
    through_d = [request for request in requests if passes(request, "d")]
    assert 0 < len(through_d) < len(requests)
    bench.stages.freeze("d")
    see(bench, lost("d", loss))
    assert not any(passes(request, "d") for request in requests)
    assert [request.epoch for request in requests] == [
        1 if request in through_d else 0 for request in requests
    ]
    bench.run()
    for request in requests:
        assert_whole(request)
    assert bench.dispatcher.silent_nodes() == ["d"]
    assert bench.serving.losses() == {"d": loss}
    assert f"lost the stage of 'd': {loss}; heard 0.050 s before" in caplog.text


def test_a_stage_that_was_suspected_wrongly_is_used_again_and_no_token_is_lost_or_repeated(
    bench: Bench,
) -> None:
    see(bench, *there())
    requests = [bench.submit() for _ in range(4)]
    bench.stages.step()
    see(bench, lost("b", Loss.SILENT))
    before = [request for request in requests if request.epoch == 1]
    assert before
    for request in before:  # its tokens were only late
        bench.stages.emit((request.id, 0), 99)
    see(bench, *there("b"))
    assert bench.dispatcher.silent_nodes() == []
    later = [bench.submit() for _ in range(4)]
    assert any(passes(request, "b") for request in later)
    bench.run()
    for request in requests + later:
        assert_whole(request)
    bench.assert_everything_is_given_back()


def test_a_stage_lost_and_found_a_hundred_times_loses_nothing(bench: Bench) -> None:
    see(bench, *there())
    request = bench.submit(max_tokens=40)
    for turn in range(100):
        node = "abcd"[turn % 4]
        see(bench, lost(node, list(Loss)[turn % 2 + 1]), *there(node))
        if turn % 5 == 0:
            bench.stages.step()
    bench.run()
    assert_whole(request, tokens=40)
    bench.assert_everything_is_given_back()


def test_with_no_way_left_requests_wait_and_go_on_as_soon_as_the_stage_is_back(
    bench: Bench,
) -> None:
    see(bench, *there())
    request = bench.submit()
    bench.stages.step()
    see(bench, *(lost(node, Loss.HANGS) for node in RANGES))
    assert (bench.dispatcher.requests_running, bench.dispatcher.requests_waiting) == (0, 1)
    see(bench, *there())
    assert bench.dispatcher.requests_running == 1
    bench.run()
    assert_whole(request)


def test_a_watched_stage_may_compute_for_long_without_a_report(bench: Bench) -> None:
    see(bench, *there())
    request = bench.submit()
    bench.clock.now += 100.0
    bench.dispatcher.expire()
    assert request.epoch == 0
    assert bench.dispatcher.silent_nodes() == []


def test_the_successor_of_a_process_that_ended_is_used_once_it_has_reported(
    bench: Bench,
) -> None:
    see(bench, *there(), lost("d"))
    bench.stages.report("d")  # was still under way
    assert bench.dispatcher.silent_nodes() == ["d"]
    see(bench, lost("d"), *there("d"))
    assert bench.dispatcher.silent_nodes() == ["d"]
    bench.stages.restart("d")
    assert bench.dispatcher.silent_nodes() == []
    requests = [bench.submit() for _ in range(3)]
    assert any(passes(request, "d") for request in requests)
    assert all(request.epoch == 0 for request in requests)


def test_a_report_alone_does_not_bring_back_whom_no_beat_reaches(bench: Bench) -> None:
    see(bench, *there(), lost("d", Loss.SILENT))
    bench.stages.report("d")
    assert bench.dispatcher.silent_nodes() == ["d"]


def test_another_plan_knows_who_is_lost(bench: Bench) -> None:
    checkpoint = Path(bench.serving.plan.checkpoint)
    see(bench, *there(), lost("d", Loss.SILENT))
    bench.dispatcher.serve(make_serving(checkpoint, generation=8))
    bench.stages.generation = 8
    bench.stages.report()
    assert bench.dispatcher.silent_nodes() == ["d"]
    see(bench, *there("d"))
    assert bench.dispatcher.silent_nodes() == []


def test_news_without_a_plan_and_of_strangers_are_taken(bench: Bench) -> None:
    see(bench, lost("nobody"), *there("nobody"))
    bench.dispatcher.serve(None)
    see(bench, lost("a"))
    assert bench.dispatcher.silent_nodes() == []


@pytest.mark.parametrize("restarted", [False, True])
def test_a_stage_that_was_out_of_reach_is_told_again_what_ended_meanwhile(
    bench: Bench, restarted: bool
) -> None:
    see(bench, *there())
    requests = [bench.submit() for _ in range(3)]
    bench.stages.step()
    bench.stages.unreachable = {"d"}
    see(bench, lost("d", Loss.SILENT))
    bench.run()
    for request in requests:
        assert_whole(request)
    assert bench.stages.nodes_with_pages == {"d"}
    bench.stages.unreachable = set()
    if restarted:
        bench.stages.restart("d")
    see(bench, *there("d"))
    bench.assert_everything_is_given_back()
