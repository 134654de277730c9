"""Whole-model instances in simulation: every token is made, in the time the model says."""

import random

import pytest

from benchmarks.instances.scheduling import simulate_instances
from planner.latency_model import Fit, LatencyModel
from planner.simulator.instances import InstanceSpec
from planner.workload.request import Lengths


def latency(base_s: float, per_request_s: float = 0.0) -> LatencyModel:
    fit = Fit(
        parameters=(0.0, per_request_s, 0.0, base_s),
    )
    return LatencyModel(prefill=fit, decode=fit)


def spec(base_s: float = 0.1, *, room: int = 10_000, most: int = 8) -> InstanceSpec:
    return InstanceSpec(latency=latency(base_s), kv_room_tokens=room, most_requests=most)


ONE = Lengths(prompt_tokens=10, output_tokens=5)


def test_a_request_alone_takes_a_prefill_and_an_iteration_for_every_further_token() -> None:
    found = simulate_instances({"a": spec()}, [(3.0, ONE)], choose=lambda n, length: "a")
    assert found.instances["a"].finished_s == pytest.approx(3.0 + 5 * 0.1)
    assert found.output_tokens_per_s == pytest.approx(5 / 0.5)
    assert found.tokens_per_s == pytest.approx(15 / 0.5)


def test_requests_at_once_share_iterations_up_to_the_most() -> None:
    arrivals = [(0.0, ONE)] * 16
    found = simulate_instances({"a": spec(most=8)}, arrivals, choose=lambda n, length: "a")
    assert found.seconds == pytest.approx(2 * 5 * 0.1)


@pytest.mark.parametrize("seed", range(6))
def test_all_requests_end_once_whatever_the_room(seed: int) -> None:
    chance = random.Random(seed)
    arrivals, at_s = [], 0.0
    for _ in range(200):
        at_s += chance.expovariate(5)
        arrivals.append(
            (
                at_s,
                Lengths(prompt_tokens=chance.randint(1, 200), output_tokens=chance.randint(1, 80)),
            )
        )
    ended: list[int] = []
    found = simulate_instances(
        {"a": spec(0.02, room=300), "b": spec(0.05, room=2000)},
        arrivals,
        choose=lambda number, length: "ab"[number % 2],
        ended=ended.append,
    )
    assert sum(one.requests for one in found.instances.values()) == 200
    assert sum(one.output_tokens for one in found.instances.values()) == sum(
        length.output_tokens for _, length in arrivals
    )
    assert len(ended) == len(set(ended)) == 200
    assert found.instances["a"].preemptions > 0
    assert found.instances["b"].preemptions == 0


def test_a_scheduler_hears_of_ends_before_it_chooses_for_the_next() -> None:
    heard: list[tuple[str, int]] = []

    def choose(number: int, length: Lengths) -> str:
        heard.append(("chose", number))
        return "a"

    simulate_instances(
        {"a": spec()},
        [(0.0, ONE), (10.0, ONE)],
        choose=choose,
        ended=lambda number: heard.append(("ended", number)),
    )
    assert heard == [("chose", 0), ("ended", 0), ("chose", 1), ("ended", 1)]


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match="request 0 of 15 tokens does not fit"):
        simulate_instances({"a": spec(room=14)}, [(0.0, ONE)], choose=lambda n, length: "a")
    with pytest.raises(ValueError, match="no requests"):
        simulate_instances({"a": spec()}, [], choose=lambda n, length: "a")
