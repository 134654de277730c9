"""What a coordinator reports of its plans while one follows another, and to a site that is away."""

import asyncio
from pathlib import Path

import pytest
from coordinator_doubles import RANGES
from fake_web import PATIENCE_S, FakeWeb, wait_until
from hub_server import HubServer, hub_server
from plan_rig import ANNOUNCEMENT, Follower, desired_state

from runtime.coordinator import coordinator as process
from runtime.coordinator.coordinator import report_forever
from runtime.coordinator.plan_follower import Stored
from runtime.coordinator.plans import RETIRED_AFTER_S
from runtime.membership.identity import PLAN_FILE, DataDir
from runtime.protocol.control import (
    CoordinatorDesired,
    LinkStats,
    PeerAddress,
)
from runtime.protocol.data import Sampling
from runtime.reaching import Reaching
from runtime.web_client import WebClient


@pytest.fixture
def desired(tmp_path: Path) -> CoordinatorDesired:
    return desired_state(tmp_path)


def reports_of(one: Follower, client: WebClient, news: asyncio.Event) -> asyncio.Task[None]:
    """A task that reports as a coordinator does, until it is cancelled."""
    return asyncio.create_task(
        report_forever(
            client,
            one.follower,
            announcement=ANNOUNCEMENT,
            make_report=lambda: one.report,
            reaching=Reaching(own_endpoint=ANNOUNCEMENT.data_endpoint, on_change=news.set),
            news=news,
        )
    )


def test_the_report_says_what_is_missing_and_then_what_runs(
    tmp_path: Path, desired: CoordinatorDesired
) -> None:
    one = Follower(tmp_path)
    one.apply(desired)
    one.stages.report("a", "b", "c")
    assert one.report.message == "waiting for the stages of: d"
    assert not one.report.nodes["d"].ready
    one.stages.report("d", pages=100)
    assert one.report.serving
    assert one.report.nodes["d"].kv_capacity_token_layers == 400
    assert one.report.ttft_p50_s is None
    one.links["d"] = LinkStats(bandwidth_bytes_per_s=5e6, bulk_bytes_per_s=2e6)
    assert one.report.links == one.links
    serving = one.dispatcher.plans.ready()
    request = one.dispatcher.submit(
        serving,
        prompt_ids=[65] * 8,
        sampling=Sampling(
            temperature=0, top_p=1, top_k=0, seed=0, max_tokens=9, stop_token_ids=(257,)
        ),
        stop_strings=(),
    )
    assert one.report.requests_running == 1
    assert sum(node.kv_estimate_token_layers for node in one.report.nodes.values()) == 6 * 20
    one.clock.now += 1
    while one.stages.step():
        pass
    done = one.report
    assert request.ended
    assert (done.requests_running, done.requests_total, done.requests_failed_total) == (0, 1, 0)
    assert (done.prompt_tokens_total, done.output_tokens_total) == (8, 3)
    assert done.output_tokens_per_s == pytest.approx(3 / done.window_s)
    assert done.ttft_p50_s == pytest.approx(1)
    assert sum(done.edge_tokens_total[f"source->{name}"] for name in "ab"
               if f"source->{name}" in done.edge_tokens_total) == 8 + 3  # fmt: skip
    assert set(done.nodes) == set(RANGES)


def test_the_report_says_which_plan_comes_and_which_leaves(
    tmp_path: Path, desired: CoordinatorDesired
) -> None:
    one = Follower(tmp_path)
    one.apply(desired)
    one.stages.report()
    assert desired.plan is not None
    one.dispatcher.submit(
        one.dispatcher.plans.ready(),
        prompt_ids=[65] * 8,
        sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0, max_tokens=3),
        stop_strings=(),
    )
    plan = desired.plan.model_copy(update={"generation": 8})
    one.apply(desired.model_copy(update={"generation": 8, "plan": plan}))
    one.stages.report("a", "b", generation=8)
    coming = one.report
    assert (coming.generation, coming.serving, coming.message) == (8, True, "")
    assert (coming.coming_generation, coming.coming_missing) == (8, ("c", "d"))
    assert coming.leaving_generation is None
    one.stages.report("c", "d", generation=8)
    leaving = one.report
    assert (leaving.coming_generation, leaving.coming_missing) == (None, ())
    assert (leaving.leaving_generation, leaving.leaving_requests) == (7, 1)
    while one.stages.step():
        pass
    for seconds in (1, RETIRED_AFTER_S + 1):
        assert one.report.leaving_generation == 7
        one.clock.now += seconds
        one.dispatcher.expire()
    assert one.report.leaving_generation is None


def test_weights_and_addresses_of_a_plan_that_is_coming_are_followed(
    tmp_path: Path, desired: CoordinatorDesired
) -> None:
    one = Follower(tmp_path)
    one.apply(desired)
    one.stages.report()
    assert desired.plan is not None
    next_plan = desired.plan.model_copy(update={"generation": 8})
    one.apply(desired.model_copy(update={"generation": 8, "plan": next_plan}))
    moved = PeerAddress(name="a", endpoint="tcp://127.0.0.1:2", public_key="k" * 40)
    only_a = {"source": {"a": 1.0}, "a": {"d": 1.0}, "d": {"sink": 1.0}}
    changes = {"routing_weights": only_a, "peers": (moved,)}
    one.apply(
        desired.model_copy(update={"generation": 8, "plan": next_plan.model_copy(update=changes)})
    )
    coming = one.dispatcher.plans.coming
    assert coming is not None
    assert coming.plan.routing_weights == only_a
    assert moved in one.peers[-1]
    assert {peer.name for peer in one.peers[-1]} == set(RANGES)


def in_the_middle_of_a_change(tmp_path: Path, desired: CoordinatorDesired) -> Follower:
    """Restarted while generation 8 was coming beside 7."""
    one = Follower(tmp_path)
    one.apply(desired)
    one.stages.report()
    assert desired.plan is not None
    plan = desired.plan.model_copy(update={"generation": 8})
    one.apply(desired.model_copy(update={"generation": 8, "plan": plan}))
    restarted = Follower(tmp_path)
    asyncio.run(restarted.follower.apply_stored())
    return restarted


def test_a_coordinator_that_was_restarted_during_a_change_lets_the_old_plan_serve_on(
    tmp_path: Path, desired: CoordinatorDesired
) -> None:
    restarted = in_the_middle_of_a_change(tmp_path, desired)
    restarted.stages.report("a", "b", generation=8)
    restarted.stages.report(generation=7)
    assert restarted.dispatcher.plans.ready().generation == 7
    assert (restarted.report.generation, restarted.report.coming_generation) == (8, 8)
    restarted.stages.report("c", "d", generation=8)
    assert restarted.dispatcher.plans.ready().generation == 8


def test_if_the_old_plan_has_gone_meanwhile_the_new_one_serves_when_it_is_up(
    tmp_path: Path, desired: CoordinatorDesired
) -> None:
    restarted = in_the_middle_of_a_change(tmp_path, desired)
    restarted.stages.report(generation=8)
    assert restarted.dispatcher.plans.ready().generation == 8
    restarted.clock.now += 1
    restarted.dispatcher.expire()
    restarted.clock.now += RETIRED_AFTER_S + 1
    restarted.dispatcher.expire()
    assert restarted.report.leaving_generation is None


def test_what_served_before_is_forgotten_with_the_next_state_that_is_stored(
    tmp_path: Path, desired: CoordinatorDesired
) -> None:
    one = in_the_middle_of_a_change(tmp_path, desired)
    stored = DataDir(tmp_path).load_wanted(Stored, PLAN_FILE)
    assert stored is not None
    assert stored.before == desired.plan
    one.stages.report(generation=8)
    one.apply(stored.desired.model_copy(update={"api_key_hashes": ()}))
    stored = DataDir(tmp_path).load_wanted(Stored, PLAN_FILE)
    assert stored is not None
    assert stored.before is None


def test_while_helixweb_refuses_every_call_news_of_a_stage_causes_one_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one after the other without a pause, beside the requests that are served."""
    monkeypatch.setattr(process, "REPORT_INTERVAL_S", 3600.0)
    one = Follower(tmp_path)

    async def talk(web: FakeWeb) -> None:
        news = asyncio.Event()
        async with WebClient(web.url, credential="c") as client:
            reporting = reports_of(one, client, news)
            for attempts in (1, 2, 3):  # the first is made at the start
                news.set()
                await asyncio.to_thread(
                    wait_until, lambda n=attempts: web.gated_answers >= n, what="an attempt"
                )
                assert not news.is_set()
            assert web.gated_answers == 3
            reporting.cancel()

    with FakeWeb() as web:
        web.is_gated = True
        asyncio.run(asyncio.wait_for(talk(web), PATIENCE_S))


def test_reports_go_on_while_a_tokenizer_is_fetched(
    tmp_path: Path, desired: CoordinatorDesired, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "REPORT_INTERVAL_S", 0.01)
    assert desired.plan is not None
    plan = desired.plan.model_copy(update={"checkpoint": "org/small"})
    one = Follower(tmp_path)

    async def talk(web: FakeWeb, hub: HubServer) -> None:
        news = asyncio.Event()
        async with WebClient(web.url, credential="c") as client:
            applying = asyncio.create_task(one.follower.apply(web.coordinator_desired))
            reporting = reports_of(one, client, news)
            await asyncio.to_thread(wait_until, lambda: len(web.reports) >= 3, what="reports")
            assert not applying.done()
            hub.answering.set()
            await applying
            assert one.follower.generation == desired.generation
            reporting.cancel()

    with hub_server({"org/small": tmp_path / "checkpoint"}) as hub, FakeWeb() as web:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.answering.clear()
        web.credentials["c"] = "a" * 32
        web.coordinator_desired = desired.model_copy(update={"plan": plan})
        asyncio.run(asyncio.wait_for(talk(web, hub), PATIENCE_S))
