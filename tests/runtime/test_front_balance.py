"""The balance alone: what it hears of instances, rests and trials."""

from contextlib import ExitStack

from front_rig import Clock, There

from planner.routers.base import RequestSize
from planner.routers.instance_choice import make_instance_router
from planner.routers.load_aware import InstanceSpeed
from runtime.front.balance import FIRST_REST_S, LONGEST_REST_S, Balance
from runtime.instances.engine_load import EngineLoad
from runtime.protocol.instance_orders import InstanceAddress


def test_what_an_instance_says_of_its_room_reaches_the_router() -> None:
    clock = Clock()
    instances = {
        name: There(address=InstanceAddress(url="http://x", model="m"), load=load)
        for name, load in (
            ("full", EngineLoad(kv_usage=1.0, kv_room_tokens=4096)),
            ("empty", EngineLoad(kv_usage=0.0, kv_room_tokens=4096)),
        )
    }
    speeds = {name: InstanceSpeed(kv_room_tokens=10**6, latency=None) for name in instances}
    router = make_instance_router("load_aware", speeds=speeds, weights={})
    balance = Balance(instances, router=router, clock=clock)
    balance.observe()
    size = RequestSize(prompt_tokens=10, predicted_output_tokens=10)
    assert [balance.choose(number, size, without=()) for number in range(5)] == ["empty"] * 5


def test_what_still_runs_at_an_instance_that_failed_keeps_nobody_from_trying_it() -> None:
    clock = Clock()
    instances = {"a": There(address=InstanceAddress(url="http://x", model="m"))}
    router = make_instance_router(
        "single", speeds={"a": InstanceSpeed(kv_room_tokens=1, latency=None)}, weights={}
    )
    balance = Balance(instances, router=router, clock=clock)
    size = RequestSize(prompt_tokens=1, predicted_output_tokens=1)
    assert balance.choose(1, size, without=()) == "a"  # a long answer
    assert balance.choose(2, size, without=()) == "a"
    balance.failed("a", "broken")
    balance.end(2)
    assert balance.choose(3, size, without=()) is None
    clock.now_s += FIRST_REST_S
    assert balance.choose(4, size, without=()) == "a"
    assert balance.choose(5, size, without=()) is None  # one tries it
    balance.end(4)  # its client hung up
    assert balance.choose(6, size, without=()) == "a"
    balance.began("a")
    assert balance.choose(7, size, without=()) == "a"


def test_failures_of_requests_sent_together_count_once_and_rests_have_an_end() -> None:
    clock = Clock()
    instances = {"a": There(address=InstanceAddress(url="http://x", model="m"))}
    router = make_instance_router(
        "single", speeds={"a": InstanceSpeed(kv_room_tokens=1, latency=None)}, weights={}
    )
    balance = Balance(instances, router=router, clock=clock)
    for _ in range(5):
        balance.failed("a", "broken")
    trouble = balance.trouble_of("a")
    assert trouble is not None
    assert trouble.until_s == clock.now_s + FIRST_REST_S
    for _ in range(50):
        clock.now_s += 1000
        balance.failed("a", "broken")
    trouble = balance.trouble_of("a")
    assert trouble is not None
    assert trouble.until_s == clock.now_s + LONGEST_REST_S


def test_no_key_shuts_others_out_and_not_twice_as_many_come_as_may() -> None:
    router = make_instance_router(
        "single", speeds={"a": InstanceSpeed(kv_room_tokens=1, latency=None)}, weights={}
    )
    balance = Balance({}, router=router, clock=Clock())
    with ExitStack() as here:
        for _ in range(4):
            assert balance.has_place("greedy", most=4)
            here.enter_context(balance.visit("greedy"))
        assert not balance.has_place("greedy", most=4)
        for owner in ("b", "b", "c", "d"):
            assert balance.has_place(owner, most=4)
            here.enter_context(balance.visit(owner))
        assert not balance.has_place("e", most=4)
    assert balance.here == 0
    assert balance.has_place("greedy", most=1)
