"""Instances by turns, by counts, by name; and how long answers are expected to be."""

import math
import random
from collections import Counter

import pytest

from planner.latency_model import Fit, LatencyModel
from planner.routers.answer_length import KEPT_LENGTHS, DrawnLength, QuantileLength
from planner.routers.base import InstanceRouter, RequestSize
from planner.routers.instance_choice import (
    INSTANCE_ROUTER_NAMES,
    UnknownInstanceRouter,
    make_instance_router,
)
from planner.routers.load_aware import InstanceSpeed

SIZE = RequestSize(prompt_tokens=100, predicted_output_tokens=50)


def speed(step_s: float, *, room: int = 100_000) -> InstanceSpeed:
    fit = Fit(
        parameters=(0.0, 0.0, 0.0, step_s),
    )
    return InstanceSpeed(kv_room_tokens=room, latency=LatencyModel(prefill=fit, decode=fit))


SPEEDS = {"a": speed(0.1), "b": speed(0.2), "c": speed(0.4)}
WEIGHTS = {"a": 4.0, "b": 2.0, "c": 1.0}


def router(name: str) -> InstanceRouter:
    return make_instance_router(name, speeds=SPEEDS, weights=WEIGHTS)


@pytest.mark.parametrize("name", INSTANCE_ROUTER_NAMES)
def test_every_router_avoids_who_is_masked_and_none_chooses_of_none(name: str) -> None:
    chance, made = random.Random(7), router(name)
    under_way: list[int] = []
    for number in range(400):
        masked = {each for each in SPEEDS if chance.random() < 0.4}
        chosen = made.choose(number, SIZE, masked=masked)
        if len(masked) == len(SPEEDS):
            assert chosen is None
            continue
        assert chosen in set(SPEEDS) - masked
        under_way.append(number)
        if chance.random() < 0.5:
            made.end(under_way.pop(chance.randrange(len(under_way))))
    with pytest.raises(ValueError, match="under way"):
        made.choose(under_way[0], SIZE)
    for number in under_way:
        made.end(number)
    with pytest.raises(KeyError):
        made.end(under_way[0])


def test_weighted_turns_are_exact_after_every_round_and_never_far_from_their_share() -> None:
    made, counts = router("weighted_round_robin"), Counter[str]()
    for number in range(70):
        counts[made.choose(number, SIZE)] += 1  # type: ignore[index]
        for name, weight in WEIGHTS.items():
            assert abs(counts[name] - (number + 1) * weight / 7) < 1.5
    assert counts == {"a": 40, "b": 20, "c": 10}


def test_who_was_masked_makes_no_burst_of_turns_afterwards() -> None:
    made = router("round_robin")
    for number in range(300):
        assert made.choose(number, SIZE, masked={"b"}) != "b"
    later = [made.choose(300 + number, SIZE) for number in range(9)]
    assert Counter(later) == {"a": 3, "b": 3, "c": 3}


def test_the_shortest_queue_is_by_requests_under_way() -> None:
    made = router("shortest_queue")
    chosen = [made.choose(number, SIZE) for number in range(6)]
    assert Counter(chosen) == {"a": 2, "b": 2, "c": 2}
    for number, name in enumerate(chosen):
        if name == "c":
            made.end(number)
    assert made.choose(10, SIZE) == "c"


def test_a_single_instance_has_all_and_the_next_one_only_while_it_is_away() -> None:
    made = router("single")
    assert {made.choose(number, SIZE) for number in range(5)} == {"a"}
    assert made.choose(5, SIZE, masked={"a"}) == "b"
    assert made.choose(6, SIZE) == "a"


def test_room_that_an_instance_tells_replaces_what_was_assumed() -> None:
    made = make_instance_router(
        "memory_based", speeds={"a": speed(1.0), "b": speed(1.0)}, weights={}
    )
    made.observe_kv_room("a", 300)
    chosen = Counter(made.choose(number, SIZE) for number in range(12))
    assert chosen["b"] > 3 * chosen["a"]


def test_usage_that_is_told_no_more_counts_no_more() -> None:
    made = router("load_aware")
    made.observe_kv_usage("a", 1.0)
    assert made.choose(1, SIZE) == "b"  # twice as slow, but empty: e^2 is more than 2
    made.end(1)
    made.observe_kv_usage("a", None)
    assert made.choose(2, SIZE) == "a"


def test_an_unknown_router_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UnknownInstanceRouter, match="load_aware, memory_based"):
        router("fastest")


@pytest.mark.parametrize("weight", [0.0, -1.0, math.inf, math.nan])
def test_a_weight_that_gives_no_turns_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="weight of 'a'"):
        make_instance_router("weighted_round_robin", speeds=SPEEDS, weights=WEIGHTS | {"a": weight})


def test_the_quantile_is_of_the_askers_own_answers_once_there_are_enough() -> None:
    lengths = QuantileLength(first_tokens=77, quantile=0.5)
    assert lengths.predict("m", "ann", max_tokens=None) == 77
    for tokens in range(1, 101):
        lengths.observe("m", "bob", tokens)
    assert lengths.predict("m", "ann", max_tokens=None) == 51  # of all who asked
    assert lengths.predict("other", "bob", max_tokens=None) == 77
    for _ in range(10):
        lengths.observe("m", "ann", 900)
    assert lengths.predict("m", "ann", max_tokens=None) == 900
    assert lengths.predict("m", "ann", max_tokens=64) == 64


def test_only_the_last_lengths_count() -> None:
    lengths = QuantileLength(first_tokens=1, quantile=1.0)
    for tokens in [5000, *[10] * KEPT_LENGTHS]:
        lengths.observe("m", "ann", tokens)
    assert lengths.predict("m", "ann", max_tokens=None) == 10


@pytest.mark.parametrize("seed", range(3))
def test_running_quantiles_are_those_of_a_sorted_window(seed: int) -> None:
    chance, lengths, seen = random.Random(seed), QuantileLength(first_tokens=1, quantile=0.9), []
    for _ in range(600):
        tokens = round(chance.lognormvariate(4, 1)) + 1
        seen.append(tokens)
        lengths.observe("m", "ann", tokens)
        window = sorted(seen[-KEPT_LENGTHS:])
        expected = window[min(len(window) - 1, int(0.9 * len(window)))]
        assert lengths.predict("m", "ann", max_tokens=None) == expected


def test_drawn_lengths_have_the_mean_of_those_seen() -> None:
    lengths = DrawnLength(first_tokens=30, rng=random.Random(5))
    assert lengths.predict("m", "ann", max_tokens=None) == 30
    for tokens in [10] * 90 + [1000] * 10:
        lengths.observe("m", "ann", tokens)
    drawn = [lengths.predict("m", "bob", max_tokens=None) for _ in range(3000)]
    assert set(drawn) == {10, 1000}
    assert sum(drawn) / len(drawn) == pytest.approx(109, rel=0.1)


def test_a_quantile_beyond_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"quantile 1\.5"):
        QuantileLength(first_tokens=1, quantile=1.5)
