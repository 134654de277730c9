"""Algorithm 2: the least of the largest workloads, taken back as it was added."""

import math
import random
from collections import Counter
from dataclasses import replace

import pytest

from planner.latency_model import Fit, LatencyModel
from planner.routers.base import RequestSize
from planner.routers.load_aware import MAX_THETA, InstanceSpeed, LoadAwareInstances

SIZE = RequestSize(prompt_tokens=100, predicted_output_tokens=50)


def speed(step_s: float, *, room: int = 3000) -> InstanceSpeed:
    fit = Fit(
        parameters=(0.0, 0.0, 0.0, step_s),
    )
    return InstanceSpeed(kv_room_tokens=room, latency=LatencyModel(prefill=fit, decode=fit))


def test_a_request_weighs_its_share_of_an_ideal_batch_times_how_full_the_instance_is() -> None:
    router = LoadAwareInstances({"only": speed(0.1)}, theta=2.0)
    share_s = (0.1 + 50 * 0.1) / 20  # twenty such requests fit
    assert router.choose(1, SIZE) == "only"
    assert router.workloads["only"] == pytest.approx(share_s)
    router.choose(2, SIZE)
    assert router.workloads["only"] == pytest.approx(share_s * (1 + math.exp(2 * 150 / 3000)))
    assert router.kv_usage("only") == pytest.approx(300 / 3000)


def test_the_first_request_goes_where_it_is_least_work_also_as_all_are_idle() -> None:
    router = LoadAwareInstances({"slow": speed(0.4), "fast": speed(0.1)})
    assert router.choose(1, SIZE) == "fast"


def test_requests_are_shared_by_speed_and_what_ended_weighs_nothing() -> None:
    router = LoadAwareInstances({"slow": speed(0.4, room=10**7), "fast": speed(0.1, room=10**7)})
    chosen = [router.choose(number, SIZE) for number in range(1000)]
    assert chosen.count("fast") == pytest.approx(800, abs=10)
    for number in range(1000):
        router.end(number)
    assert router.workloads == {"slow": 0.0, "fast": 0.0}
    assert router.kv_usage("fast") == 0


@pytest.mark.parametrize("seed", range(5))
def test_workloads_are_always_the_sum_of_what_is_under_way(seed: int) -> None:
    chance = random.Random(seed)
    router = LoadAwareInstances({"a": speed(0.1), "b": speed(0.3, room=9000), "c": speed(0.2)})
    under_way: dict[int, tuple[str, float]] = {}
    for number in range(500):
        before = dict(router.workloads)
        size = RequestSize(
            prompt_tokens=chance.randint(1, 900), predicted_output_tokens=chance.randint(0, 300)
        )
        name = router.choose(number, size)
        assert name is not None
        under_way[number] = (name, router.workloads[name] - before[name])
        while under_way and chance.random() < 0.5:
            gone = chance.choice(list(under_way))
            router.end(gone)
            del under_way[gone]
        for instance in ("a", "b", "c"):
            held = sum(load for where, load in under_way.values() if where == instance)
            assert router.workloads[instance] == pytest.approx(held, abs=1e-6)


def test_masked_instances_get_nothing_and_none_is_said_where_all_are() -> None:
    router = LoadAwareInstances({"a": speed(0.1), "b": speed(0.3)})
    assert router.choose(1, SIZE, masked={"a"}) == "b"
    assert router.choose(2, SIZE, masked={"a", "b"}) is None
    assert router.workloads["a"] == 0


def test_what_an_instance_says_of_its_room_counts_where_it_is_more_than_predicted() -> None:
    router = LoadAwareInstances({"a": speed(0.1), "b": speed(0.11)})
    router.observe_kv_usage("a", 0.9)
    assert router.choose(1, SIZE) == "b"
    router.observe_kv_usage("a", 0.0)
    assert router.kv_usage("a") == 0


def test_the_largest_theta_makes_numbers_still() -> None:
    router = LoadAwareInstances({"a": speed(0.1), "b": speed(0.2)}, theta=MAX_THETA)
    assert {router.choose(number, SIZE) for number in range(100)} == {"a", "b"}


def test_by_memory_alone_every_instance_is_as_fast() -> None:
    router = LoadAwareInstances(
        {
            "small": InstanceSpeed(kv_room_tokens=1000, latency=None),
            "large": InstanceSpeed(kv_room_tokens=4000, latency=None),
        }
    )
    chosen = [router.choose(number, SIZE) for number in range(30)]
    assert chosen.count("large") > chosen.count("small") > 0


@pytest.mark.parametrize("step_s", [0.001, 10.0])
def test_one_whose_times_nobody_knows_is_neither_left_out_nor_flooded(step_s: float) -> None:
    router = LoadAwareInstances(
        {"timed": speed(step_s), "untimed": InstanceSpeed(kv_room_tokens=3000, latency=None)}
    )
    chosen = [router.choose(number, SIZE) for number in range(400)]
    assert chosen.count("untimed") == pytest.approx(200, abs=2)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="no instance"):
        LoadAwareInstances({})
    for theta in (0, 1000, math.nan):
        with pytest.raises(ValueError, match=f"theta is {theta}"):
            LoadAwareInstances({"a": speed(0.1)}, theta=theta)
    router = LoadAwareInstances({"a": speed(0.1)})
    router.choose(1, SIZE)
    with pytest.raises(ValueError, match="1 is under way"):
        router.choose(1, SIZE)
    with pytest.raises(KeyError):
        router.end(2)


def test_beyond_full_instances_are_told_apart_by_speed_unless_the_papers_way_is_asked_for() -> None:
    instances = {"fast": speed(0.1, room=3000), "slow": speed(0.4, room=12_000)}

    def shares(router: LoadAwareInstances) -> int:
        chosen = [router.choose(number, SIZE) for number in range(2000)]
        return chosen.count("fast")

    # the slow one's batch of 80 takes as long as four of the fast one's 20: as many tokens/s
    assert shares(LoadAwareInstances(instances)) == pytest.approx(1000, rel=0.05)
    by_room = shares(LoadAwareInstances(instances, usage_limit=math.inf))
    assert by_room == pytest.approx(2000 * 3000 / 15_000, rel=0.05)


def batching(per_request_s: float, base_s: float, *, room: int = 100_000) -> InstanceSpeed:
    """One whose step takes longer with more requests."""
    latency = speed(1.0).latency
    assert latency is not None
    decode = replace(latency.decode, parameters=(0.0, per_request_s, 0.0, base_s))
    prefill = replace(latency.prefill, parameters=(0.0, 0.0, 0.0, 0.0))
    return InstanceSpeed(kv_room_tokens=room, latency=LatencyModel(prefill=prefill, decode=decode))


def taken(router: LoadAwareInstances, requests: int) -> Counter[str | None]:
    return Counter(router.choose(number, SIZE) for number in range(requests))


def test_few_requests_go_where_they_end_sooner_and_not_where_most_would_fit() -> None:
    """As a GPU and a CPU: with 256 requests 40 times as fast, alone slower."""
    instances = {"gpu": batching(0.0003, 0.05), "cpu": batching(0.014, 0.026)}
    router = LoadAwareInstances(instances)
    assert router.choose("first", SIZE) == "cpu"
    router.end("first")
    assert taken(router, 12) == {"gpu": 11, "cpu": 1}  # two take 54 ms a step there, 11 here 53


def test_a_small_room_beside_a_large_one_does_not_keep_requests_away() -> None:
    """Machines that are as fast; one has room for one request."""
    instances = {"large": batching(0.04, 0.58), "small": batching(0.04, 0.58, room=200)}
    router = LoadAwareInstances(instances)
    assert taken(router, 12)["small"] >= 1


@pytest.mark.parametrize("times", [2, 3])
def test_twelve_requests_are_shared_by_throughput(times: int) -> None:
    """In proportion to requests/s at the batches that each then has, to one request."""
    instances = {
        "fast": batching(0.014, 0.026),
        "slow": batching(0.014 * times, 0.026 * times),
    }
    slow = taken(LoadAwareInstances(instances), 12)["slow"]
    assert slow == pytest.approx(12 / (1 + times), abs=1)
