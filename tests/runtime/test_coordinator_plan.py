"""The plan a coordinator serves: where it comes from, and how it is remembered."""

import asyncio
from pathlib import Path

import pytest
from coordinator_doubles import (
    RANGES,
    WEIGHTS,
)
from hub_server import hub_server
from plan_rig import Follower, desired_state, submit_to

from runtime.coordinator.live_request import LiveRequest
from runtime.coordinator.plan_follower import Stored
from runtime.coordinator.refusals import NotServing
from runtime.membership.identity import PLAN_FILE, DataDir
from runtime.protocol.control import (
    CoordinatorDesired,
    PeerAddress,
)
from runtime.protocol.data import Sampling
from runtime.protocol.openai import ApiError


@pytest.fixture
def desired(tmp_path: Path) -> CoordinatorDesired:
    return desired_state(tmp_path)


def test_a_restarted_coordinator_serves_the_last_plan_and_keys_without_helixweb(
    tmp_path: Path, desired: CoordinatorDesired
) -> None:
    Follower(tmp_path).apply(desired)
    restarted = Follower(tmp_path)
    asyncio.run(restarted.follower.apply_stored())
    restarted.stages.report()
    assert restarted.dispatcher.plans.ready().plan == desired.plan
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
    assert restarted.dispatcher.plans.ready().plan == plan
    fresh = Follower(tmp_path / "other")
    fresh.apply(desired)
    assert "HF_HUB_OFFLINE is set" in fresh.report.message


def test_the_first_start_has_nothing_stored_and_says_so(tmp_path: Path) -> None:
    fresh = Follower(tmp_path)
    asyncio.run(fresh.follower.apply_stored())
    assert not fresh.report.serving
    assert "no plan is deployed" in fresh.report.message


def test_a_broken_store_is_passed_over_at_start_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / PLAN_FILE).write_text('{"generation": -1}')
    fresh = Follower(tmp_path)
    asyncio.run(fresh.follower.apply_stored())
    assert fresh.dispatcher.serving is None
    assert "plan.json is damaged (generation: " in caplog.text


def test_what_a_full_disk_did_not_take_is_served_and_stored_once_there_is_room(
    tmp_path: Path, desired: CoordinatorDesired, caplog: pytest.LogCaptureFixture
) -> None:
    obstacle = tmp_path / "plan.json.new"
    obstacle.mkdir()
    one = Follower(tmp_path)
    one.apply(desired)
    for _ in range(3):
        asyncio.run(one.follower.store_again())
    one.stages.report()
    assert one.dispatcher.plans.ready().plan == desired.plan
    assert caplog.text.count("would not be known after a restart") == 1
    obstacle.rmdir()
    asyncio.run(one.follower.store_again())
    stored = stored_in(tmp_path)
    assert stored is not None
    assert stored.desired == desired


def test_the_store_is_for_its_owner_only_and_replaced_whole(
    tmp_path: Path, desired: CoordinatorDesired
) -> None:
    one = Follower(tmp_path)
    one.apply(desired)
    one.apply(CoordinatorDesired(generation=8))
    stored = stored_in(tmp_path)
    assert stored is not None
    assert stored.desired == CoordinatorDesired(generation=8)
    assert (tmp_path / PLAN_FILE).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.glob("plan*")] == [PLAN_FILE]


def stored_in(path: Path) -> Stored | None:
    return DataDir(path).load_wanted(Stored, PLAN_FILE)


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
    serving = one.dispatcher.plans.ready()
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
        one.dispatcher.plans.ready()
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
