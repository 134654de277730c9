"""One plan follows another while requests run: nobody waits, and no token is lost or repeated."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from coordinator_doubles import (
    RANGES,
    Clock,
    ScriptedStages,
    make_dispatcher,
    make_serving,
    routing,
    serving_plan,
    write_checkpoint,
)
from test_coordinator_dispatcher import HELLO, drain

from planner.domain.cluster import SINK, SOURCE
from planner.domain.placement import LayerRange, Placement
from runtime.coordinator.live_request import LiveRequest, RequestFailed
from runtime.coordinator.plans import RETIRED_AFTER_S
from runtime.coordinator.serving import Serving
from runtime.protocol.control import PeerAddress, ServingPlan
from runtime.protocol.data import Kind, Reason, Sampling
from runtime.transport.heartbeats import Loss, PeerEvent

OLD, NEW, THIRD = 7, 8, 9
NEW_RANGES = {"a": (0, 2), "b": (2, 6), "e": (0, 6)}  # c and d hold nothing any more
NEW_WEIGHTS = {
    SOURCE: {"a": 1.0, "e": 1.0},
    "a": {"b": 1.0},
    "b": {SINK: 1.0},
    "e": {SINK: 1.0},
}
MIGRATE_AFTER_S = 30.0


def counting(prompt: list[int]) -> Iterator[int]:
    """What a model would say: the next token depends on the sequence so far alone."""
    return iter([60 + (len(prompt) + index) % 20 for index in range(300)])


def undisturbed(tokens: int) -> list[int]:
    return [60 + (10 + index) % 20 for index in range(tokens)]


class Change:
    """The plan of generation 7 serves; `follow` brings another."""

    def __init__(self, checkpoint: Path, *, pages: int = 10_000) -> None:
        self.checkpoint = checkpoint
        self.pages = pages
        self.clock = Clock()
        self.stages = ScriptedStages(counting)
        self.stages.incarnations |= {"e": 1}
        self.dispatcher, _ = make_dispatcher(
            self.stages, clock=self.clock, migrate_after_s=MIGRATE_AFTER_S
        )
        self.old = make_serving(checkpoint)
        self.dispatcher.serve(self.old)
        self.tell(OLD)

    def follow(self, generation: int = NEW, **changes: object) -> Serving:
        """Another layout, which comes up when it is told of."""
        return self.serve(
            serving_plan(
                self.checkpoint,
                generation=generation,
                placement=Placement(
                    layers={
                        name: LayerRange(first=first, end=end)
                        for name, (first, end) in NEW_RANGES.items()
                    }
                ),
                routing_weights=NEW_WEIGHTS,
                peers=tuple(address(name) for name in NEW_RANGES),
                **changes,
            )
        )

    def go_back(self, generation: int) -> Serving:
        """The layout of the first plan once more."""
        return self.serve(serving_plan(self.checkpoint, generation=generation))

    def serve(self, plan: ServingPlan) -> Serving:
        serving = Serving(
            plan=plan,
            tokenizer=self.old.tokenizer,
            routing=routing(),
            before=self.dispatcher.serving,
        )
        self.dispatcher.serve(serving)
        return serving

    def tell(self, generation: int, *nodes: str) -> None:
        """STATUS of these stages of that generation, or of all."""
        self.stages.report(
            *nodes,
            generation=generation,
            ranges=RANGES if generation == OLD else NEW_RANGES,
            pages=self.pages,
        )

    def submit(self, serving: Serving | None = None, *, max_tokens: int = 20) -> LiveRequest:
        return self.dispatcher.submit(
            serving or self.dispatcher.plans.open(),
            prompt_ids=HELLO,
            sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=1, max_tokens=max_tokens),
            stop_strings=(),
        )

    def run(self) -> None:
        while self.stages.step():
            self.clock.now += 0.01

    def tick(self, seconds: float = 1.0) -> None:
        self.clock.now += seconds
        self.dispatcher.expire()

    def let_pass(self, seconds: float) -> None:
        """While all stages of both plans are well."""
        self.clock.now += seconds
        self.tell(OLD)
        self.tell(NEW)
        self.dispatcher.expire()

    def retired_at(self, generation: int) -> set[str]:
        return {node for node, own in self.stages.retired if own == generation}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "checkpoint")


@pytest.fixture
def change(checkpoint: Path) -> Change:
    return Change(checkpoint)


def address(name: str) -> PeerAddress:
    return PeerAddress(name=name, endpoint="tcp://127.0.0.1:1", public_key="k" * 40)


def assert_whole(request: LiveRequest, *, tokens: int = 20) -> None:
    """Every token once and in order, as without a disturbance."""
    assert [delta.token_id for delta in drain(request)] == undisturbed(tokens)


def generation_of(change: Change, request: LiveRequest) -> int:
    """In which it was sent out last."""
    return change.stages.generations[request.id, request.epoch]


def test_requests_go_on_under_the_old_plan_until_every_stage_of_the_new_one_is_up(
    change: Change,
) -> None:
    early = change.submit()
    change.follow()
    change.tell(NEW, "a", "b")
    meanwhile = change.submit()
    assert generation_of(change, meanwhile) == OLD
    change.tell(NEW, "e")
    late = change.submit()
    assert generation_of(change, late) == NEW
    change.run()
    for request in (early, meanwhile, late):
        assert request.epoch == 0
        assert_whole(request)


def test_the_old_plan_is_retired_at_all_its_stages_when_nothing_runs_under_it(
    change: Change,
) -> None:
    request = change.submit()
    change.follow()
    change.tell(NEW)
    change.tick()
    assert change.dispatcher.requests_leaving == 1
    assert not change.stages.retired
    change.run()
    assert_whole(request)
    change.tick()
    assert change.retired_at(OLD) == set(RANGES)
    assert not change.stages.nodes_with_pages


def test_what_still_runs_at_the_deadline_goes_on_under_the_new_plan(change: Change) -> None:
    requests = [change.submit() for _ in range(3)]
    change.follow()
    change.tell(NEW)
    for _ in range(5):
        change.stages.step()
    change.let_pass(MIGRATE_AFTER_S - 1)
    assert [request.epoch for request in requests] == [0, 0, 0]
    change.let_pass(2)
    assert [generation_of(change, request) for request in requests] == [NEW, NEW, NEW]
    assert change.retired_at(OLD) == set(RANGES)
    change.run()
    for request in requests:
        assert_whole(request)


def test_a_stage_that_missed_its_retirement_is_told_again_and_reached_until_it_heeds_it(
    change: Change,
) -> None:
    change.follow()
    change.tell(NEW)
    change.tick()
    for _ in range(10):
        change.stages.retired.clear()
        change.tell(NEW)
        change.tell(OLD, "c")
        assert change.stages.retired == {("c", OLD)}
        change.tick()
    plans = change.dispatcher.plans
    assert plans.leaving_generation == OLD
    assert {peer.name for peer in plans.peers} == {*RANGES, *NEW_RANGES}
    change.tell(NEW)
    change.tick(RETIRED_AFTER_S + 1)
    assert plans.leaving_generation is None
    assert {peer.name for peer in plans.peers} == set(NEW_RANGES)


def test_a_node_that_is_in_both_is_reached_where_the_new_plan_says(change: Change) -> None:
    moved = PeerAddress(name="a", endpoint="tcp://127.0.0.1:2", public_key="k" * 40)
    new = change.follow()
    new.readdress((moved, address("b"), address("e")))
    assert [peer for peer in change.dispatcher.plans.peers if peer.name == "a"] == [moved]


def test_both_plans_count_the_same_pages(checkpoint: Path) -> None:
    change = Change(checkpoint, pages=96)
    first = change.submit()
    used = {node: change.old.kv.used_token_layers(node) for node in "ab"}
    assert sum(used.values()) > 0
    new = change.follow()
    change.tell(NEW)
    assert {node: new.kv.used_token_layers(node) for node in "ab"} == used
    while not change.dispatcher.requests_waiting:
        last = change.submit()
    assert last.pipeline is None
    change.run()
    assert_whole(first)
    change.run()
    assert last.pipeline is not None
    change.run()
    assert_whole(last)
    assert all(new.kv.used_token_layers(node) == 0 for node in NEW_RANGES)


def test_who_waits_for_the_old_plan_goes_in_with_the_new_one(checkpoint: Path) -> None:
    change = Change(checkpoint, pages=96)
    while change.dispatcher.requests_waiting < 2:
        waiting = change.submit()
    change.follow()
    change.tell(NEW)  # with e, where nothing runs yet
    assert generation_of(change, waiting) == NEW
    change.run()
    assert_whole(waiting)


def test_who_waits_and_no_longer_fits_is_told_so_when_the_new_plan_is_up(checkpoint: Path) -> None:
    change = Change(checkpoint, pages=96)
    while change.dispatcher.requests_waiting < 2:
        waiting = change.submit()
    change.follow()
    change.pages = 8
    change.tell(NEW)
    with pytest.raises(RequestFailed, match="more KV cache than any pipeline"):
        drain(waiting)


def test_a_request_that_was_read_for_the_old_plan_is_taken_by_the_new_one(change: Change) -> None:
    change.follow()
    change.tell(NEW)
    request = change.submit(change.old)
    assert request.serving.generation == NEW
    change.run()
    assert_whole(request)


def test_a_request_that_begins_anew_does_so_under_the_new_plan(change: Change) -> None:
    request = change.submit()
    change.stages.step()
    change.follow()
    change.tell(NEW)
    change.stages.refuse((request.id, 0), Reason.PREFIX_GONE)
    assert generation_of(change, request) == NEW
    change.run()
    assert_whole(request)


def test_a_lost_process_is_lost_to_both_plans(change: Change) -> None:
    before = [change.submit() for _ in range(3)]
    change.follow()
    change.tell(NEW)
    after = [change.submit() for _ in range(4)]
    change.stages.step()
    lost = [request for request in (*before, *after) if passes(request, "a")]
    assert {request.serving.generation for request in lost} == {OLD, NEW}
    change.dispatcher.see(PeerEvent(peer="a", loss=Loss.ENDED, silent_s=0.1))
    assert all(generation_of(change, request) == NEW for request in lost)
    assert not any(passes(request, "a") for request in lost)
    change.run()
    for request in (*before, *after):
        assert_whole(request)


def test_a_stage_that_was_restarted_for_the_new_plan_is_known_to_have_left_the_old_one(
    change: Change,
) -> None:
    request = change.submit()
    while not passes(request, "a"):
        request = change.submit()
    change.stages.step()
    change.follow()
    change.stages.incarnations["a"] += 1
    change.tell(NEW, "a")
    assert request.pipeline is None or not passes(request, "a")
    assert "a" in change.old.silent_nodes()
    change.tell(NEW, "b", "e")
    change.run()
    assert_whole(request)


def test_a_new_plan_with_a_lost_stage_waits_unless_the_old_one_has_lost_one_too(
    change: Change,
) -> None:
    change.follow()
    change.tell(NEW, "a", "e")
    change.dispatcher.see(PeerEvent(peer="e", loss=Loss.ENDED, silent_s=0.1))
    change.tell(NEW, "b")
    assert change.dispatcher.plans.open() is change.old
    change.dispatcher.see(PeerEvent(peer="d", loss=Loss.ENDED, silent_s=0.1))
    assert change.dispatcher.plans.open().generation == NEW


def test_a_third_plan_takes_the_place_of_one_that_is_coming(change: Change) -> None:
    request = change.submit()
    change.follow()
    change.tell(NEW, "a", "b")
    change.follow(THIRD)
    assert change.retired_at(NEW) == set(NEW_RANGES)
    change.tell(NEW, "e")  # has not heard of it yet
    assert change.dispatcher.plans.open() is change.old
    change.tell(THIRD)
    assert change.dispatcher.plans.open().generation == THIRD
    change.run()
    assert_whole(request)


def test_with_a_third_plan_what_leaves_goes_at_once(change: Change) -> None:
    request = change.submit()
    change.stages.step()
    change.follow()
    change.tell(NEW)
    assert generation_of(change, request) == OLD
    change.follow(THIRD)
    assert generation_of(change, request) == NEW
    assert change.retired_at(OLD) == set(RANGES)
    change.tell(THIRD)
    change.run()
    assert_whole(request)


def test_the_plan_before_can_be_had_back_while_it_still_leaves(change: Change) -> None:
    requests = [change.submit()]
    change.follow()
    change.tell(NEW)
    requests.append(change.submit())
    change.stages.step()
    change.go_back(THIRD)
    change.stages.report(generation=THIRD)
    requests.append(change.submit())
    assert generation_of(change, requests[-1]) == THIRD
    change.run()
    for request in requests:
        assert_whole(request)
    change.tick()
    assert change.retired_at(OLD) == set(RANGES)
    assert change.retired_at(NEW) == set(NEW_RANGES)


def test_without_a_plan_nothing_goes_on(change: Change) -> None:
    requests = [change.submit()]
    change.follow()
    change.tell(NEW)
    requests.append(change.submit())
    change.dispatcher.serve(None)
    for request in requests:
        with pytest.raises(RequestFailed, match="the plan was replaced"):
            drain(request)
    assert not change.stages.nodes_with_pages
    assert change.dispatcher.plans.peers == ()


def test_an_older_generation_is_retired_once_the_plan_is_up_and_a_newer_one_left_alone(
    checkpoint: Path,
) -> None:
    stages = ScriptedStages(counting)
    dispatcher, _ = make_dispatcher(stages, clock=Clock())
    dispatcher.serve(make_serving(checkpoint), was_served=True)  # this process was restarted
    stages.report("a", generation=6)
    stages.report("a", generation=8)
    assert not stages.retired
    stages.report()
    stages.report("a", generation=6)
    stages.report("a", generation=8)
    assert stages.retired == {("a", 6)}


def test_a_plan_of_other_pages_is_not_put_beside(change: Change) -> None:
    request = change.submit()
    change.follow(page_tokens=8)
    assert request.pipeline is None
    assert change.dispatcher.plans.coming is None
    change.stages.report(generation=NEW, ranges=NEW_RANGES, page_tokens=8)
    change.run()
    assert_whole(request)
    change.tell(OLD, "c")
    assert ("c", OLD) in change.stages.retired


def test_an_answer_longer_than_the_new_context_ends_when_it_moves(change: Change) -> None:
    request = change.submit(max_tokens=100)
    while len(request.token_ids) < 30:
        change.stages.step()
    change.follow(max_context_tokens=40)
    change.tell(NEW)
    change.let_pass(MIGRATE_AFTER_S + 1)
    with pytest.raises(RequestFailed, match="its 40 tokens so far leave no room in the 40"):
        drain(request)


def test_prompts_of_both_generations_reach_a_stage_of_both(change: Change) -> None:
    for _ in range(3):
        change.submit()
    change.follow()
    change.tell(NEW)
    for _ in range(3):
        change.submit()
    prompts = [
        (peer, message.generation)
        for peer, message in change.stages.sent
        if message.kind == Kind.PROMPT
    ]
    assert {("a", OLD), ("a", NEW)} <= set(prompts)


def passes(request: LiveRequest, node: str) -> bool:
    return request.pipeline is not None and node in {
        stage.node for stage in request.pipeline.stages
    }
