"""IWRR over the flow: shares, determinism, layer hand-over, masks (Helix §5.1, §5.2)."""

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.domain.cluster import SINK, SOURCE
from planner.domain.errors import InvalidPlacement
from planner.domain.pipeline import Pipeline
from planner.domain.placement import LayerRange, Placement
from planner.routers.base import RequestSize
from planner.routers.hops import Hops
from planner.routers.iwrr import InterleavedWeightedRoundRobin, with_flow
from planner.routers.kv_estimator import KvEstimator
from planner.routers.walk import WalkRouter
from tests.examples import examples

SMALL = RequestSize(prompt_tokens=4, predicted_output_tokens=4)


def router_of(
    ranges: dict[str, tuple[int, int]],
    weights: dict[str, dict[str, float]],
    *,
    partial_inference: bool = True,
    capacity: dict[str, float] | None = None,
) -> tuple[WalkRouter, KvEstimator]:
    kv = KvEstimator(
        capacity_token_layers=capacity or dict.fromkeys(ranges, 1e9), page_tokens=1, high_water=0.9
    )
    placement = Placement(
        layers={name: LayerRange(first=first, end=end) for name, (first, end) in ranges.items()}
    )
    hops = Hops(
        routing_weights=with_flow(weights),
        placement=placement,
        num_layers=max(end for _, end in ranges.values()),
        partial_inference=partial_inference,
        kv=kv,
    )
    return WalkRouter(hops, InterleavedWeightedRoundRobin), kv


def names(pipeline: Pipeline | None) -> list[str]:
    assert pipeline is not None
    return [stage.node for stage in pipeline.stages]


# Figure 4 of Helix, reduced: two entries, an overlap in the middle, two exits.
RANGES = {"a": (0, 6), "b": (0, 4), "c": (4, 8), "d": (6, 12), "e": (8, 12)}
WEIGHTS = {
    SOURCE: {"a": 30.0, "b": 20.0},
    "a": {"c": 10.0, "d": 20.0},
    "b": {"c": 20.0},
    "c": {"e": 30.0},
    "d": {SINK: 20.0},
    "e": {SINK: 30.0},
}


@given(
    st.lists(st.floats(min_value=1e-3, max_value=1e6), min_size=1, max_size=8),
    st.integers(min_value=1, max_value=400),
)
@settings(max_examples=examples(80))
def test_after_any_number_of_turns_every_candidate_is_within_one_of_its_share(
    weights: list[float], turns: int
) -> None:
    named = {f"n{i}": weight for i, weight in enumerate(weights)}
    round_robin = InterleavedWeightedRoundRobin(named)
    counts: Counter[str] = Counter()
    total = sum(weights)
    for turn in range(1, turns + 1):
        counts[round_robin.take(round_robin.candidates)] += 1
        for name, weight in named.items():
            assert abs(counts[name] - turn * weight / total) < 1 + 1e-6


def test_turns_are_interleaved_not_in_bursts() -> None:
    round_robin = InterleavedWeightedRoundRobin({"a": 2.0, "b": 1.0, "c": 1.0})
    turns = [round_robin.take(round_robin.candidates) for _ in range(40)]
    assert all(len(list(run)) == 1 for _, run in itertools.groupby(turns))


def test_a_candidate_closed_for_long_does_not_swallow_the_traffic_when_it_opens() -> None:
    round_robin = InterleavedWeightedRoundRobin({"a": 1.0, "b": 1.0})
    for _ in range(1000):
        round_robin.take(["a"])
    after = Counter(round_robin.take(["a", "b"]) for _ in range(10))
    assert abs(after["b"] - 5) <= 1


def test_pipelines_follow_the_flow_at_every_vertex() -> None:
    router, _ = router_of(RANGES, WEIGHTS)
    edges: Counter[tuple[str, str]] = Counter()
    for _ in range(500):
        path = [SOURCE, *names(router.choose(SMALL)), SINK]
        edges.update(itertools.pairwise(path))
    for source, targets in WEIGHTS.items():
        visits = sum(edges[source, target] for target in targets)
        for target, weight in targets.items():
            share = visits * weight / sum(targets.values())
            assert abs(edges[source, target] - share) < 1 + 1e-6


def test_two_equal_routers_choose_the_same_pipelines() -> None:
    first, _ = router_of(RANGES, WEIGHTS)
    second, _ = router_of(RANGES, WEIGHTS)
    assert [first.choose(SMALL) for _ in range(60)] == [second.choose(SMALL) for _ in range(60)]


def test_with_partial_inference_a_request_enters_a_node_in_the_middle_of_its_range() -> None:
    router, _ = router_of(RANGES, WEIGHTS)
    chosen = [router.choose(SMALL) for _ in range(20)]
    spans = {
        tuple((stage.node, stage.first, stage.end) for stage in pipeline.stages)
        for pipeline in chosen
        if pipeline
    }
    assert (("a", 0, 6), ("c", 6, 8), ("e", 8, 12)) in spans
    assert (("b", 0, 4), ("c", 4, 8), ("e", 8, 12)) in spans


def test_without_partial_inference_such_a_hop_is_refused() -> None:
    with pytest.raises(InvalidPlacement, match="comes for layer 6 but 'c' holds"):
        router_of(RANGES, WEIGHTS, partial_inference=False)


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("a", SINK, "has run 6 of 12 layers"),
        (SOURCE, "e", "comes for layer 0"),
        ("e", "ghost", "'ghost' holds no layers"),
        ("d", "a", "comes for layer 12"),
    ],
)
def test_a_weight_that_the_placement_does_not_allow_is_refused(
    source: str, target: str, words: str
) -> None:
    with pytest.raises(InvalidPlacement, match=words):
        router_of(RANGES, {**WEIGHTS, source: {**WEIGHTS[source], target: 1.0}})


def test_a_masked_node_is_avoided_and_the_rest_keep_their_shares() -> None:
    router, _ = router_of(RANGES, WEIGHTS)
    paths = [names(router.choose(SMALL, masked={"d"})) for _ in range(50)]
    assert all("d" not in path for path in paths)
    firsts = Counter(path[0] for path in paths)
    assert abs(firsts["a"] - 30) <= 1


def test_a_dead_end_behind_an_open_node_is_not_entered() -> None:
    router, _ = router_of(
        {"a": (0, 4), "b": (0, 4), "x": (4, 8), "y": (4, 8)},
        {
            SOURCE: {"a": 100.0, "b": 1.0},
            "a": {"x": 100.0},
            "b": {"y": 1.0},
            "x": {SINK: 100.0},
            "y": {SINK: 1.0},
        },
    )
    assert [names(router.choose(SMALL, masked={"x"})) for _ in range(5)] == [["b", "y"]] * 5


def test_no_route_gives_none_and_uses_up_no_turn() -> None:
    router, _ = router_of(RANGES, WEIGHTS)
    untouched, _ = router_of(RANGES, WEIGHTS)
    assert router.choose(SMALL, masked={"e", "d"}) is None
    assert [router.choose(SMALL) for _ in range(9)] == [untouched.choose(SMALL) for _ in range(9)]


def test_a_node_above_the_high_water_mark_is_avoided_until_a_release() -> None:
    router, kv = router_of(
        {"a": (0, 4), "b": (0, 4)},
        {SOURCE: {"a": 1.0, "b": 1.0}, "a": {SINK: 1.0}, "b": {SINK: 1.0}},
        capacity={"a": 80.0, "b": 40.0},  # a request takes 32: two would pass 90 % of a
    )
    for request in range(2):
        pipeline = router.choose(SMALL)
        assert pipeline is not None
        kv.admit(request, pipeline, size=SMALL)
    third = router.choose(SMALL)
    assert third is not None
    assert names(third) == ["a"]
    kv.admit(2, third, size=SMALL)
    assert router.choose(SMALL) is None
    assert router.can_ever_serve(SMALL)
    kv.release(0)
    assert router.choose(SMALL) is not None


def test_a_request_no_idle_route_can_hold_is_known_to_be_hopeless() -> None:
    router, _ = router_of(RANGES, WEIGHTS, capacity=dict.fromkeys(RANGES, 100.0))
    assert not router.can_ever_serve(RequestSize(prompt_tokens=60, predicted_output_tokens=1))


@given(data=st.data())
@settings(max_examples=examples(150))
def test_a_route_is_found_exactly_when_enumeration_finds_one(data: st.DataObject) -> None:
    num_layers = data.draw(st.integers(2, 5))
    ranges = {}
    for i in range(data.draw(st.integers(1, 6))):
        first = data.draw(st.integers(0, num_layers - 1))
        ranges[f"n{i}"] = (first, data.draw(st.integers(first + 1, num_layers)))
    weights: dict[str, dict[str, float]] = {SOURCE: {}} | {name: {} for name in ranges}
    for source in weights:
        position = 0 if source == SOURCE else ranges[source][1]
        for target, (first, end) in ranges.items():
            if first <= position < end and data.draw(st.booleans()):
                weights[source][target] = data.draw(st.floats(0.1, 10))
        if position == num_layers:
            weights[source][SINK] = 1.0
    masked = {name for name in ranges if data.draw(st.booleans())}
    ranges["last"] = (num_layers - 1, num_layers)  # fixes the router's number of layers
    router, _ = router_of(ranges, weights)

    def reaches_sink(vertex: str) -> bool:
        return any(
            target == SINK or (target not in masked and reaches_sink(target))
            for target in weights.get(vertex, {})
        )

    pipeline = router.choose(SMALL, masked=masked)
    assert (pipeline is not None) == reaches_sink(SOURCE)
    if pipeline is not None:
        assert pipeline.num_layers == num_layers
        assert not masked & {stage.node for stage in pipeline.stages}
