"""The plan a coordinator serves: where it comes from, how it is remembered, what is reported."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from coordinator_doubles import (
    RANGES,
    WEIGHTS,
    Clock,
    ScriptedStages,
    make_dispatcher,
    routing,
    serving_plan,
    write_checkpoint,
)
from fake_web import PATIENCE_S, FakeWeb, wait_until
from hub_server import HubServer, hub_server

from runtime.api.access import ApiKeys
from runtime.coordinator import control_loop
from runtime.coordinator.control_loop import report_forever
from runtime.coordinator.live_request import LiveRequest
from runtime.coordinator.plan_follower import PlanFollower
from runtime.coordinator.plan_store import PlanStore, PlanStoreError
from runtime.coordinator.plans import RETIRED_AFTER_S
from runtime.coordinator.refusals import NotServing
from runtime.coordinator.reporter import build_report
from runtime.protocol.control import (
    AgentIdentity,
    CoordinatorDesired,
    Hardware,
    LinkStats,
    PeerAddress,
)
from runtime.protocol.openai import ApiError
from runtime.protocol.routes import Sampling
from runtime.protocol.weight_access import WeightAccess
from runtime.reaching import Reaching
from runtime.web_client import WebClient

ANNOUNCEMENT = AgentIdentity(
    hardware=Hardware(hostname="h", cpu_count=1, memory_bytes=1, memory_budget_bytes=1),
    data_endpoint="tcp://127.0.0.1:1",
    data_public_key="k" * 40,
)
SHA256_OF_ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


class Follower:
    """A follower with everything it drives, as one process start would make it."""

    def __init__(self, data_dir: Path) -> None:
        self.clock = Clock()
        self.stages = ScriptedStages(lambda prompt: [65, 66, 257])
        self.dispatcher, self.stats = make_dispatcher(self.stages, clock=self.clock)
        self.keys = ApiKeys()
        self.peers: list[tuple[PeerAddress, ...]] = []
        self.links: dict[str, LinkStats] = {}
        self.follower = PlanFollower(
            dispatcher=self.dispatcher,
            keys=self.keys,
            store=PlanStore(data_dir / "desired.json"),
            set_peers=self.peers.append,
            routing=routing(),
            weights=lambda: WeightAccess(directory=str(data_dir / "weights")),
        )

    def apply(self, desired: CoordinatorDesired) -> None:
        asyncio.run(self.follower.apply(desired))

    @property
    def report(self) -> Any:
        return build_report(
            dispatcher=self.dispatcher,
            stats=self.stats,
            follower=self.follower,
            now=self.clock(),
            links=self.links,
        )


@pytest.fixture
def desired(tmp_path: Path) -> CoordinatorDesired:
    plan = serving_plan(write_checkpoint(tmp_path / "checkpoint"))
    return CoordinatorDesired(generation=7, plan=plan, api_key_hashes=(SHA256_OF_ABC,))


def test_a_restarted_coordinator_serves_the_last_plan_and_keys_without_helixweb(
    tmp_path: Path, desired: CoordinatorDesired
) -> None:
    Follower(tmp_path).apply(desired)
    restarted = Follower(tmp_path)
    asyncio.run(restarted.follower.apply_stored())
    restarted.stages.report()
    assert restarted.dispatcher.ready_serving().plan == desired.plan
    assert restarted.peers == [desired.plan.peers if desired.plan else ()]
    restarted.keys.check("Bearer abc")
    assert restarted.report.generation == 7


def test_the_tokenizer_of_a_model_on_a_hub_is_fetched_once(
    tmp_path: Path, desired: CoordinatorDesired, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert desired.plan is not None
    plan = desired.plan.model_copy(update={"checkpoint": "org/small"})
    desired = desired.model_copy(update={"plan": plan})
    with hub_server({"org/small": tmp_path / "checkpoint"}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        Follower(tmp_path).apply(desired)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    restarted = Follower(tmp_path)
    asyncio.run(restarted.follower.apply_stored())
    restarted.stages.report()
    assert restarted.dispatcher.ready_serving().plan == plan
    fresh = Follower(tmp_path / "other")
    (tmp_path / "other").mkdir()
    fresh.apply(desired)
    assert "HF_HUB_OFFLINE is set" in fresh.report.message


def test_the_first_start_has_nothing_stored_and_says_so(tmp_path: Path) -> None:
    fresh = Follower(tmp_path)
    asyncio.run(fresh.follower.apply_stored())
    assert not fresh.report.serving
    assert "no plan is deployed" in fresh.report.message


def test_a_broken_store_is_passed_over_at_start_and_named_when_read(tmp_path: Path) -> None:
    path = tmp_path / "desired.json"
    path.write_text('{"generation": -1}')
    with pytest.raises(PlanStoreError, match=r"desired\.json .*generation.*delete it"):
        PlanStore(path).load()
    fresh = Follower(tmp_path)
    asyncio.run(fresh.follower.apply_stored())
    assert fresh.dispatcher.serving is None


def test_what_a_full_disk_did_not_take_is_served_and_stored_once_there_is_room(
    tmp_path: Path, desired: CoordinatorDesired, caplog: pytest.LogCaptureFixture
) -> None:
    obstacle = tmp_path / "desired.json.new"
    obstacle.mkdir()
    one = Follower(tmp_path)
    one.apply(desired)
    for _ in range(3):
        asyncio.run(one.follower.store_again())
    one.stages.report()
    assert one.dispatcher.ready_serving().plan == desired.plan
    assert caplog.text.count("would not be known after a restart") == 1
    obstacle.rmdir()
    asyncio.run(one.follower.store_again())
    stored = PlanStore(tmp_path / "desired.json").load()
    assert stored is not None
    assert stored.desired == desired


def test_the_store_is_for_its_owner_only_and_replaced_whole(
    tmp_path: Path, desired: CoordinatorDesired
) -> None:
    store = PlanStore(tmp_path / "desired.json")
    store.save(desired)
    store.save(CoordinatorDesired(generation=8))
    stored = store.load()
    assert stored is not None
    assert stored.desired == CoordinatorDesired(generation=8)
    assert (tmp_path / "desired.json").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.glob("desired*")] == ["desired.json"]


def test_the_same_desired_state_twice_changes_nothing(
    tmp_path: Path, desired: CoordinatorDesired
) -> None:
    one = Follower(tmp_path)
    one.apply(desired)
    serving = one.dispatcher.serving
    one.apply(desired)
    assert one.dispatcher.serving is serving
    assert len(one.peers) == 1


def test_new_keys_or_new_addresses_do_not_disturb_the_running_plan(
    tmp_path: Path, desired: CoordinatorDesired
) -> None:
    one = Follower(tmp_path)
    one.apply(desired)
    serving = one.dispatcher.serving
    assert desired.plan is not None
    moved = (PeerAddress(name="a", endpoint="tcp://127.0.0.1:2", public_key="k" * 40),)
    plan = desired.plan.model_copy(update={"peers": moved})
    one.apply(CoordinatorDesired(generation=7, plan=plan, api_key_hashes=()))
    assert one.dispatcher.serving is serving
    assert one.peers[-1] == moved
    with pytest.raises(ApiError):
        one.keys.check("Bearer abc")


def test_other_instances_beside_them_do_not_disturb_the_pipelines(
    tmp_path: Path, desired: CoordinatorDesired
) -> None:
    """As when a node of instances is drained."""
    one = Follower(tmp_path)
    assert desired.plan is not None
    for total in (2, 1):
        plan = desired.plan.model_copy(update={"instances_total": total})
        one.apply(desired.model_copy(update={"plan": plan}))
        serving = one.dispatcher.serving
        assert serving is not None
        assert serving.plan.instances_total == 2


def test_other_weights_change_routes_and_end_no_request(
    tmp_path: Path, desired: CoordinatorDesired
) -> None:
    one = Follower(tmp_path)
    one.apply(desired)
    one.stages.report()
    assert desired.plan is not None
    serving = one.dispatcher.ready_serving()
    sampling = Sampling(
        temperature=0, top_p=1, top_k=0, seed=0, max_tokens=9, stop_token_ids=(257,)
    )

    def submit() -> LiveRequest:
        return one.dispatcher.submit(
            serving, prompt_ids=[65] * 8, sampling=sampling, stop_strings=()
        )

    before = submit()
    only_a = {"source": {"a": 1.0}, "a": {"d": 1.0}, "d": {"sink": 1.0}}
    plan = desired.plan.model_copy(update={"routing_weights": only_a})
    one.apply(desired.model_copy(update={"plan": plan}))
    assert one.dispatcher.serving is serving
    after = [submit() for _ in range(3)]
    for request in after:
        assert request.pipeline is not None
        assert [stage.node for stage in request.pipeline.stages] == ["a", "d"]
    while one.stages.step():
        pass
    assert all(request.ended for request in (before, *after))
    assert one.report.requests_failed_total == 0
    one.apply(desired)
    paths = {stage.node for _ in range(3) for stage in submit().pipeline.stages}  # type: ignore[union-attr]
    assert paths == set(RANGES)


def test_weights_that_contradict_the_placement_leave_those_before(
    tmp_path: Path, desired: CoordinatorDesired
) -> None:
    one = Follower(tmp_path)
    one.apply(desired)
    serving = one.dispatcher.serving
    assert serving is not None
    assert desired.plan is not None
    router = serving.router
    plan = desired.plan.model_copy(update={"routing_weights": {"source": {"d": 1.0}}})
    one.apply(desired.model_copy(update={"plan": plan}))
    assert one.dispatcher.serving is serving
    assert serving.router is router


def test_a_plan_that_is_withdrawn_is_served_no_more(
    tmp_path: Path, desired: CoordinatorDesired
) -> None:
    one = Follower(tmp_path)
    one.apply(desired)
    one.apply(CoordinatorDesired(generation=8))
    assert one.dispatcher.serving is None
    assert one.peers[-1] == ()


def refused(one: Follower, desired: CoordinatorDesired, **changes: object) -> CoordinatorDesired:
    """Has it asked for a plan that it cannot serve, after `desired`."""
    assert desired.plan is not None
    plan = desired.plan.model_copy(update={"generation": 8, **changes})
    one.apply(wanted := CoordinatorDesired(generation=8, plan=plan))
    return wanted


def test_a_plan_of_another_checkpoint_that_cannot_be_read_leaves_nothing(
    tmp_path: Path, desired: CoordinatorDesired
) -> None:
    one = Follower(tmp_path)
    one.apply(desired)
    refused(one, desired, checkpoint="/nowhere")
    assert one.dispatcher.serving is None
    assert not one.report.serving
    assert "/nowhere/tokenizer.json does not exist" in one.report.message
    assert one.report.refused_generation == 8
    with pytest.raises(NotServing, match="deployed plan cannot be served"):
        one.dispatcher.ready_serving()
    one.apply(desired)
    assert one.follower.trouble == ""
    assert one.report.refused_generation is None


def test_a_plan_of_the_same_checkpoint_that_cannot_be_served_ends_nothing(
    tmp_path: Path, desired: CoordinatorDesired
) -> None:
    one = Follower(tmp_path)
    one.apply(desired)
    one.stages.report()
    request = submit_to(one)
    wanted = refused(one, desired, routing_weights={"source": {"d": 1.0}})
    assert one.report.serving
    assert (one.report.generation, one.report.refused_generation) == (8, 8)
    assert "'d' holds" in one.report.message
    while one.stages.step():
        pass
    assert request.token_ids == [65, 66, 257]
    restarted = Follower(tmp_path)
    asyncio.run(restarted.follower.apply_stored())
    restarted.stages.report()
    assert restarted.report.serving
    assert restarted.report.refused_generation == 8
    plan = wanted.plan.model_copy(update={"routing_weights": WEIGHTS, "generation": 9})
    restarted.apply(CoordinatorDesired(generation=9, plan=plan))
    assert restarted.report.refused_generation is None
    assert restarted.report.coming_generation == 9


def submit_to(one: Follower) -> LiveRequest:
    return one.dispatcher.submit(
        one.dispatcher.ready_serving(),
        prompt_ids=[1, 2, 3],
        sampling=Sampling(
            temperature=0, top_p=1, top_k=0, seed=1, max_tokens=9, stop_token_ids=(257,)
        ),
        stop_strings=(),
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
    serving = one.dispatcher.ready_serving()
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
        one.dispatcher.ready_serving(),
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
    assert restarted.dispatcher.ready_serving().generation == 7
    assert (restarted.report.generation, restarted.report.coming_generation) == (8, 8)
    restarted.stages.report("c", "d", generation=8)
    assert restarted.dispatcher.ready_serving().generation == 8


def test_if_the_old_plan_has_gone_meanwhile_the_new_one_serves_when_it_is_up(
    tmp_path: Path, desired: CoordinatorDesired
) -> None:
    restarted = in_the_middle_of_a_change(tmp_path, desired)
    restarted.stages.report(generation=8)
    assert restarted.dispatcher.ready_serving().generation == 8
    restarted.clock.now += 1
    restarted.dispatcher.expire()
    restarted.clock.now += RETIRED_AFTER_S + 1
    restarted.dispatcher.expire()
    assert restarted.report.leaving_generation is None


def test_what_served_before_is_forgotten_with_the_next_state_that_is_stored(
    tmp_path: Path, desired: CoordinatorDesired
) -> None:
    store = PlanStore(tmp_path / "desired.json")
    one = in_the_middle_of_a_change(tmp_path, desired)
    stored = store.load()
    assert stored is not None
    assert stored.before == desired.plan
    one.stages.report(generation=8)
    one.apply(stored.desired.model_copy(update={"api_key_hashes": ()}))
    stored = store.load()
    assert stored is not None
    assert stored.before is None


def test_while_helixweb_refuses_every_call_news_of_a_stage_causes_one_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one after the other without a pause, beside the requests that are served."""
    monkeypatch.setattr(control_loop, "REPORT_INTERVAL_S", 3600.0)
    one = Follower(tmp_path)

    async def talk(web: FakeWeb) -> None:
        news = asyncio.Event()
        async with WebClient(web.url, credential="c") as client:
            reporting = asyncio.create_task(
                report_forever(
                    client,
                    one.follower,
                    announcement=ANNOUNCEMENT,
                    make_report=lambda: one.report,
                    reaching=Reaching(own_endpoint=ANNOUNCEMENT.data_endpoint, on_change=news.set),
                    news=news,
                )
            )
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
    monkeypatch.setattr(control_loop, "REPORT_INTERVAL_S", 0.01)
    assert desired.plan is not None
    plan = desired.plan.model_copy(update={"checkpoint": "org/small"})
    one = Follower(tmp_path)

    async def talk(web: FakeWeb, hub: HubServer) -> None:
        news = asyncio.Event()
        async with WebClient(web.url, credential="c") as client:
            applying = asyncio.create_task(one.follower.apply(web.coordinator_desired))
            reporting = asyncio.create_task(
                report_forever(
                    client,
                    one.follower,
                    announcement=ANNOUNCEMENT,
                    make_report=lambda: one.report,
                    reaching=Reaching(own_endpoint=ANNOUNCEMENT.data_endpoint, on_change=news.set),
                    news=news,
                )
            )
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
