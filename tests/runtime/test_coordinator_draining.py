"""Nodes are left free, and deployments paused, without a token lost; against scripted stages.

The ways are a-c, a-d and b-c.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from coordinator_doubles import (
    RANGES,
    WEIGHTS,
    ScriptedStages,
    routing,
    see,
    serving_plan,
    write_checkpoint,
)
from plan_rig import Follower
from test_coordinator_dispatcher import Bench, drain
from test_coordinator_recovery import assert_whole, counting, passes

from planner.domain.cluster import SINK, SOURCE
from planner.routers.leading_past import leads_past
from runtime.coordinator.dispatcher import MIGRATE_AFTER_S
from runtime.coordinator.live_request import RequestFailed
from runtime.coordinator.refusals import NotServing, QueueFull
from runtime.coordinator.serving import Serving
from runtime.coordinator.stage_news import LEAVES_WITHIN_S
from runtime.protocol.control import CoordinatorDesired, DrainProgress
from runtime.protocol.data import Kind, Message
from runtime.transport.heartbeats import Loss, PeerEvent

LIFE = 4


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(write_checkpoint(tmp_path / "checkpoint"))
    bench.stages.script = counting
    return bench


def leave(stages: ScriptedStages, node: str) -> None:
    stages.deliver(node, Message(kind=Kind.LEAVING, generation=7, life=LIFE))


def tick(bench: Bench, seconds: float = 1.0, **pages: int) -> None:
    """Stages report meanwhile, with so many pages."""
    bench.clock.now += seconds
    for node in RANGES:
        bench.stages.report(node, pages=pages.get(node, 10_000))
    bench.dispatcher.expire()


def test_a_way_leads_past_nodes_only_over_hops_with_weight_that_are_not_cut() -> None:
    assert leads_past((), weights=WEIGHTS)
    assert leads_past(("d", "b"), weights=WEIGHTS)
    assert leads_past(("a",), weights=WEIGHTS)
    assert not leads_past(("a", "c"), weights=WEIGHTS)
    assert not leads_past(("c",), weights=WEIGHTS, cut={("a", "d")})
    assert not leads_past((), weights={SOURCE: {"a": 1.0}, "a": {SINK: 0.0}})


class CountedWeights(dict[str, dict[str, float]]):
    """`searches`: how often a way was looked for from the source."""

    searches = 0

    def get(self, vertex: str, *default: Any) -> Any:
        self.searches += vertex == SOURCE
        return super().get(vertex, *default)


def test_a_node_to_be_drained_is_gone_around_by_one_search_for_all_that_wait(bench: Bench) -> None:
    serving, weights = bench.serving, CountedWeights(WEIGHTS)
    serving.plan = serving.plan.model_copy(update={"routing_weights": weights})

    def searches_for_many() -> int:
        before = weights.searches
        for _ in range(100):
            assert serving.is_up
            serving.avoided_nodes()
        return weights.searches - before

    assert searches_for_many() == 0
    serving.draining = frozenset({"d"})
    assert searches_for_many() == 1
    assert serving.avoided_nodes() == {"d"}
    serving.see(PeerEvent(peer="c", loss=Loss.SILENT, silent_s=1.0))
    assert searches_for_many() == 1
    assert serving.avoided_nodes() == {"c"}, "all go by it now"
    serving.see(PeerEvent(peer="c", loss=None, silent_s=0.0))
    serving.cut = frozenset({("a", "c"), ("b", "c")})
    assert searches_for_many() == 1
    assert not serving.avoided_nodes()
    serving.cut = frozenset()
    assert serving.avoided_nodes() == {"d"}
    weights = CountedWeights({SOURCE: {"a": 1.0}, "a": {"d": 1.0}, "d": {SINK: 1.0}})
    plan = serving.plan.model_copy(update={"routing_weights": weights})
    serving.reweigh(plan, routing=routing())
    assert searches_for_many() == 1
    assert not serving.avoided_nodes(), "no weight leads past it any more"


def test_new_requests_go_around_a_node_to_be_drained_and_its_own_end_there(bench: Bench) -> None:
    before = [bench.submit() for _ in range(6)]
    through_d = [request for request in before if passes(request, "d")]
    assert through_d
    bench.dispatcher.draining.wish(["d"])
    assert not any(passes(bench.submit(), "d") for _ in range(6))
    progress = bench.dispatcher.draining.progress()
    assert progress == {"d": DrainProgress(requests=len(through_d), needed=False)}
    bench.run()
    assert all(request.epoch == 0 for request in before)
    assert bench.dispatcher.draining.progress() == {"d": DrainProgress(requests=0, needed=False)}
    bench.assert_everything_is_given_back()


def test_what_runs_through_it_for_too_long_goes_on_elsewhere(bench: Bench) -> None:
    requests = [bench.submit() for _ in range(6)]
    through_d = [request for request in requests if passes(request, "d")]
    bench.dispatcher.draining.wish(["d"])
    bench.stages.step()
    tick(bench, MIGRATE_AFTER_S - 1)
    assert all(passes(request, "d") for request in through_d)
    tick(bench)
    assert not any(passes(request, "d") for request in requests)
    assert [request.epoch for request in requests] == [
        1 if request in through_d else 0 for request in requests
    ]
    bench.run()
    for request in requests:
        assert_whole(request)
    bench.assert_everything_is_given_back()


def test_what_finds_no_room_elsewhere_stays_until_there_is_some(tmp_path: Path) -> None:
    bench = Bench(write_checkpoint(tmp_path / "checkpoint"), pages=200)
    bench.stages.script = counting
    bench.stages.report("c", pages=40)  # room for one that comes from b, or two from a
    requests = bench.fill()
    through_d = [request for request in requests if passes(request, "d")]
    bench.dispatcher.draining.wish(["d"])
    tick(bench, MIGRATE_AFTER_S, a=200, b=200, c=40, d=200)
    assert len(through_d) > 2
    assert all(passes(request, "d") for request in through_d)
    bench.run()
    for request in requests:
        assert_whole(request)
    bench.assert_everything_is_given_back()


def test_a_node_without_a_way_around_goes_on_and_is_called_needed(bench: Bench) -> None:
    bench.dispatcher.draining.wish(["a", "c"])
    requests = [bench.submit() for _ in range(3)]
    assert all(passes(request, "b") and passes(request, "c") for request in requests)
    tick(bench, MIGRATE_AFTER_S)
    assert bench.dispatcher.draining.progress() == {
        "a": DrainProgress(requests=0, needed=False),
        "c": DrainProgress(requests=3, needed=True),
    }
    bench.run()
    for request in requests:
        assert_whole(request)


def test_a_drained_node_takes_requests_while_the_way_around_it_is_silent(bench: Bench) -> None:
    bench.dispatcher.draining.wish(["d"])
    bench.stages.restart("c")
    bench.stages.unreachable = {"c"}
    see(bench.dispatcher, "c", loss=Loss.SILENT)
    assert passes(bench.submit(), "d")


def test_a_node_that_is_taken_in_again_gets_requests_at_once(bench: Bench) -> None:
    bench.dispatcher.draining.wish(["d"])
    bench.dispatcher.draining.wish([])
    assert any(passes(bench.submit(), "d") for _ in range(6))
    assert bench.dispatcher.draining.progress() == {}


def test_a_plan_that_comes_meanwhile_leaves_the_node_free_too(bench: Bench) -> None:
    bench.dispatcher.draining.wish(["d"])
    following = Serving(
        plan=serving_plan(Path(bench.serving.plan.checkpoint), generation=8),
        tokenizer=bench.serving.tokenizer,
        routing=routing(),
        before=bench.serving,
    )
    bench.dispatcher.serve(following)
    bench.stages.generation = 8
    bench.stages.report()
    assert bench.dispatcher.serving is following
    bench.serving = following
    assert not any(passes(bench.submit(), "d") for _ in range(6))


def test_after_a_restart_nobody_waits_for_the_stage_of_a_drained_node(tmp_path: Path) -> None:
    plan = serving_plan(write_checkpoint(tmp_path / "checkpoint"))
    Follower(tmp_path).apply(CoordinatorDesired(generation=7, plan=plan, draining=("d",)))
    restarted = Follower(tmp_path)
    asyncio.run(restarted.follower.apply_stored())
    restarted.stages.report("a", "b")
    assert not restarted.report.serving
    restarted.stages.report("c")
    assert restarted.report.serving
    assert restarted.report.draining == {"d": DrainProgress(requests=0, needed=False)}


def test_a_stage_that_is_about_to_end_is_let_go_when_its_requests_run_elsewhere(
    bench: Bench,
) -> None:
    requests = [bench.submit() for _ in range(6)]
    through_d = [request for request in requests if passes(request, "d")]
    bench.stages.step()
    leave(bench.stages, "d")
    assert bench.stages.lives == {LIFE}, "who comes after it is not meant"
    assert through_d
    assert not any(passes(request, "d") for request in requests)
    assert bench.stages.retired == {("d", 7)}
    assert not any(passes(bench.submit(), "d") for _ in range(3))
    bench.run()
    for request in requests:
        assert_whole(request)
    bench.assert_everything_is_given_back()


def test_a_stage_that_nobody_can_do_without_is_not_let_go(bench: Bench) -> None:
    requests = [bench.submit() for _ in range(6)]
    leave(bench.stages, "a")
    leave(bench.stages, "c")
    assert ("c", 7) not in bench.stages.retired
    assert all(request.pipeline is not None for request in requests)
    bench.run()
    for request in requests:
        assert_whole(request)


def test_a_stage_that_leaves_and_serves_what_nobody_knows_is_let_go_at_once(bench: Bench) -> None:
    bench.stages.deliver("d", Message(kind=Kind.LEAVING, generation=6, life=LIFE))
    assert bench.stages.retired == {("d", 6)}
    assert any(passes(bench.submit(), "d") for _ in range(6))


def test_a_stage_that_came_back_after_leaving_gets_requests_again(bench: Bench) -> None:
    leave(bench.stages, "d")
    tick(bench, LEAVES_WITHIN_S + 1)
    bench.stages.restart("d")
    bench.stages.report()
    assert any(passes(bench.submit(), "d") for _ in range(6))


def test_while_paused_new_requests_wait_and_those_that_run_end(bench: Bench) -> None:
    running = bench.submit()
    bench.dispatcher.pause(paused=True)
    waiting = [bench.submit(), bench.submit()]
    with pytest.raises(QueueFull):
        bench.submit()
    bench.run()
    assert_whole(running)
    assert bench.dispatcher.requests_waiting == 2
    bench.dispatcher.pause(paused=False)
    bench.run()
    for request in waiting:
        assert_whole(request)
    bench.assert_everything_is_given_back()


def test_a_request_whose_way_is_lost_goes_on_though_it_is_paused(bench: Bench) -> None:
    running = bench.submit()
    bench.stages.step()
    bench.dispatcher.pause(paused=True)
    assert running.pipeline is not None
    bench.stages.restart(running.pipeline.stages[-1].node)
    bench.run()
    assert_whole(running)


def test_who_waits_too_long_for_a_paused_deployment_is_told_so(bench: Bench) -> None:
    bench.dispatcher.pause(paused=True)
    request = bench.submit()
    tick(bench, 121.0)
    with pytest.raises(RequestFailed, match=r"paused and was not resumed within 120 s") as failure:
        drain(request)
    assert failure.value.code == "paused"


@pytest.mark.parametrize("paused_first", [True, False])
def test_what_a_pause_keeps_waiting_ends_at_once_when_the_coordinator_is_told_to_end(
    bench: Bench, *, paused_first: bool
) -> None:
    running = bench.submit()
    bench.stages.step()
    if paused_first:
        bench.dispatcher.pause(paused=True)
        waiting = bench.submit()
        bench.dispatcher.close()
    else:
        while (waiting := bench.submit()).pipeline is not None:
            pass
        bench.dispatcher.close()
        bench.dispatcher.pause(paused=True)
    assert running.pipeline is not None
    with pytest.raises(RequestFailed, match=r"paused and its coordinator is stopping") as failure:
        drain(waiting)
    assert failure.value.code == "stopping"
    assert bench.dispatcher.requests_waiting == 0
    bench.run()
    assert_whole(running)


def test_a_restarted_coordinator_stays_paused(tmp_path: Path) -> None:
    plan = serving_plan(write_checkpoint(tmp_path / "checkpoint"))
    desired = CoordinatorDesired(generation=7, plan=plan, paused=True)
    Follower(tmp_path).apply(desired)
    restarted = Follower(tmp_path)
    asyncio.run(restarted.follower.apply_stored())
    restarted.stages.report()
    assert restarted.report.paused
    assert restarted.report.serving
    restarted.apply(desired.model_copy(update={"paused": False}))
    assert not restarted.report.paused


def test_a_coordinator_that_stops_takes_nothing_new_and_ends_what_it_has(bench: Bench) -> None:
    request = bench.submit()
    bench.dispatcher.close()
    with pytest.raises(NotServing, match="the coordinator is stopping"):
        bench.submit()
    assert bench.dispatcher.requests_here == 1
    bench.run()
    assert_whole(request)
    assert bench.dispatcher.requests_here == 0
