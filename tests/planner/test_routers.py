"""Routers by name: what each follows, what all respect, and what a plan change leaves of it."""

import itertools
import random
from collections import Counter
from collections.abc import Mapping

import pytest

from planner.domain.cluster import SINK, SOURCE
from planner.domain.pipeline import Pipeline
from planner.domain.placement import LayerRange, Placement
from planner.routers.base import RequestSize, Router
from planner.routers.choice import ROUTER_NAMES, UnknownRouter, make_router
from planner.routers.kv_estimator import KvEstimator

SMALL = RequestSize(prompt_tokens=4, predicted_output_tokens=4)
RANGES = {"a": (0, 6), "b": (0, 4), "c": (4, 8), "d": (6, 12), "e": (8, 12)}
WEIGHTS = {
    SOURCE: {"a": 30.0, "b": 20.0},
    "a": {"c": 10.0, "d": 20.0},
    "b": {"c": 20.0},
    "c": {"e": 30.0},
    "d": {SINK: 20.0},
    "e": {SINK: 30.0},
}


class Load:
    """A view of the load that a test writes down."""

    def __init__(self) -> None:
        self.queue: dict[str, int] = {}
        self.running: dict[str, int] = {}
        self.rates: dict[str, float] = {}

    def queued(self, node: str) -> int:
        return self.queue.get(node, 0)

    def in_flight(self, node: str) -> int:
        return self.running.get(node, 0)

    def tokens_per_s(self, node: str) -> float | None:
        return self.rates.get(node)


def placed(ranges: Mapping[str, tuple[int, int]], *components: set[str]) -> Placement:
    return Placement(
        layers={name: LayerRange(first=first, end=end) for name, (first, end) in ranges.items()},
        components=tuple(map(frozenset, components)),
    )


def estimator(ranges: Mapping[str, tuple[int, int]], **capacity: float) -> KvEstimator:
    return KvEstimator(
        capacity_token_layers=dict.fromkeys(ranges, 1e9) | capacity, page_tokens=1, high_water=0.9
    )


def router_of(
    name: str,
    *,
    weights: Mapping[str, Mapping[str, float]] = WEIGHTS,
    placement: Placement | None = None,
    kv: KvEstimator | None = None,
    load: Load | None = None,
    seed: int = 1,
) -> Router:
    placement = placement or placed(RANGES)
    return make_router(
        name,
        routing_weights=weights,
        placement=placement,
        num_layers=max(held.end for held in placement.layers.values()),
        partial_inference=True,
        kv=kv or estimator(dict.fromkeys(placement.layers, (0, 1))),
        load=load or Load(),
        rng=random.Random(seed),
    )


def path(pipeline: Pipeline | None) -> tuple[str, ...]:
    assert pipeline is not None
    return tuple(stage.node for stage in pipeline.stages)


def flat(**weights: float) -> tuple[Placement, dict[str, dict[str, float]]]:
    """Nodes that each hold the whole model."""
    return placed(dict.fromkeys(weights, (0, 2))), {
        SOURCE: weights,
        **{name: {SINK: 1.0} for name in weights},
    }


@pytest.mark.parametrize("name", ROUTER_NAMES)
def test_a_chain_of_a_thousand_stages_is_routed(name: str) -> None:
    names = [f"n{number}" for number in range(1000)]
    weights = {
        source: {target: 1.0} for source, target in itertools.pairwise([SOURCE, *names, SINK])
    }
    chain = placed({name: (number, number + 1) for number, name in enumerate(names)})
    router = router_of(name, weights=weights, placement=chain)
    assert path(router.choose(SMALL)) == tuple(names)


def firsts(router: Router, turns: int) -> list[str]:
    return [path(router.choose(SMALL))[0] for _ in range(turns)]


@pytest.mark.parametrize("name", ROUTER_NAMES)
def test_every_router_runs_all_layers_in_order_avoids_masks_and_repeats_itself(name: str) -> None:
    first, second = router_of(name), router_of(name)
    for masked in itertools.islice(itertools.cycle([(), ("d",), ("b",)]), 60):
        chosen = first.choose(SMALL, masked=masked)
        assert chosen is not None
        assert chosen.num_layers == 12
        assert not set(masked) & set(path(chosen))
        assert chosen == second.choose(SMALL, masked=masked)
    assert first.choose(SMALL, masked=("a", "b")) is None


@pytest.mark.parametrize("name", ROUTER_NAMES)
def test_every_router_goes_around_a_cut_hop_and_still_uses_its_ends(name: str) -> None:
    router = router_of(name)
    chosen = [path(router.choose(SMALL, cut={("a", "c")})) for _ in range(60)]
    assert set(chosen) == {("a", "d"), ("b", "c", "e")}
    assert router.choose(SMALL, cut={("a", "c"), ("a", "d"), ("b", "c")}) is None


@pytest.mark.parametrize("name", ROUTER_NAMES)
def test_every_router_keeps_to_the_same_kv_limit(name: str) -> None:
    placement, weights = flat(a=1.0, b=1.0)
    kv = estimator(placement.as_lists(), a=80.0, b=40.0)  # a request takes 8 tokens x 2 layers
    router = router_of(name, weights=weights, placement=placement, kv=kv)
    admitted: Counter[str] = Counter()
    while (chosen := router.choose(SMALL)) is not None:
        kv.admit(admitted.total(), chosen, size=SMALL)
        admitted.update(path(chosen))
    assert admitted == {"a": 4, "b": 2}  # 90 % of 80 and of 40
    assert router.can_ever_serve(SMALL)
    long = RequestSize(prompt_tokens=30, predicted_output_tokens=5)
    assert router.entered_when_idle(long) == {"a"}
    assert not router.can_ever_serve(RequestSize(prompt_tokens=41, predicted_output_tokens=0))


@pytest.mark.parametrize("name", ROUTER_NAMES)
def test_a_full_component_leaves_the_other_open(name: str) -> None:
    ranges = {"a": (0, 2), "b": (2, 4), "c": (0, 2), "d": (2, 4)}
    placement = placed(ranges, {"a", "b"}, {"c", "d"})
    weights = {
        SOURCE: {"a": 9.0, "c": 1.0},
        "a": {"b": 1.0},
        "b": {SINK: 1.0},
        "c": {"d": 1.0},
        "d": {SINK: 1.0},
    }
    kv = estimator(ranges, a=20.0)  # one request
    router = router_of(name, weights=weights, placement=placement, kv=kv)
    paths = []
    for request in range(6):
        chosen = router.choose(SMALL)
        assert chosen is not None
        kv.admit(request, chosen, size=SMALL)
        paths.append(path(chosen))
    assert set(paths) == {("a", "b"), ("c", "d")}
    assert paths.count(("a", "b")) == 1


def test_an_unknown_router_is_refused_by_name() -> None:
    with pytest.raises(UnknownRouter, match="'best' is unknown; use one of: iwrr, published"):
        router_of("best")


def test_the_published_router_balances_tokens_not_requests() -> None:
    placement, weights = flat(a=1.0, b=1.0)
    router = router_of("published", weights=weights, placement=placement)
    long = RequestSize(prompt_tokens=10 * SMALL.total_tokens - 4, predicted_output_tokens=4)
    assert path(router.choose(long)) == ("a",)
    assert firsts(router, 10) == ["b"] * 10
    assert set(firsts(router, 2)) == {"a", "b"}


def test_the_published_router_never_takes_less_than_a_twentieth_of_the_flow() -> None:
    placement, weights = flat(a=96.0, b=4.0)
    assert set(firsts(router_of("published", weights=weights, placement=placement), 99)) == {"a"}
    assert "b" in firsts(router_of("iwrr", weights=weights, placement=placement), 99)


def test_the_published_router_walks_into_dead_ends_and_adds_no_load_then() -> None:
    ranges = {"a": (0, 2), "b": (0, 2), "x": (2, 4), "y": (2, 4)}
    weights = {
        SOURCE: {"a": 1.0, "b": 1.0},
        "a": {"x": 1.0},
        "b": {"y": 1.0},
        "x": {SINK: 1.0},
        "y": {SINK: 1.0},
    }
    router = router_of("published", weights=weights, placement=placed(ranges))
    assert router.choose(SMALL, masked=("x",)) is None
    assert path(router.choose(SMALL)) == ("a", "x")
    assert path(
        router_of("iwrr", weights=weights, placement=placed(ranges)).choose(SMALL, masked=("x",))
    ) == ("b", "y")


def test_the_published_router_avoids_what_could_never_hold_the_request() -> None:
    ranges = {"a": (0, 2), "b": (0, 2), "x": (2, 4), "y": (2, 4)}
    weights = {
        SOURCE: {"a": 9.0, "b": 1.0},
        "a": {"x": 1.0},
        "b": {"y": 1.0},
        "x": {SINK: 1.0},
        "y": {SINK: 1.0},
    }
    kv = estimator(ranges, x=10.0)  # a request takes 16
    router = router_of("published", weights=weights, placement=placed(ranges), kv=kv)
    assert path(router.choose(SMALL)) == ("b", "y")


def test_round_robin_takes_everyone_in_turn_and_the_weighted_kind_in_bursts() -> None:
    placement, weights = flat(a=3.0, b=1.0)
    plain = router_of("round_robin", weights=weights, placement=placement)
    assert firsts(plain, 4) == ["a", "b", "a", "b"]
    weighted = router_of("weighted_round_robin", weights=weights, placement=placement)
    assert firsts(weighted, 32) == (["a"] * 12 + ["b"] * 4) * 2


def test_a_hop_without_weight_is_for_routers_that_do_not_follow_the_flow() -> None:
    placement, weights = flat(a=1.0, b=0.0)
    for name in ROUTER_NAMES:
        router = router_of(name, weights=weights, placement=placement)
        follows_flow = name in ("iwrr", "published", "weighted_round_robin")
        assert set(firsts(router, 40)) == ({"a"} if follows_flow else {"a", "b"}), name


def test_random_routing_is_as_random_as_its_source() -> None:
    placement, weights = flat(a=9.0, b=1.0)
    taken = firsts(router_of("random", weights=weights, placement=placement), 400)
    other = firsts(router_of("random", weights=weights, placement=placement, seed=2), 400)
    assert 140 < Counter(taken)["b"] < 260
    assert taken != other


def test_the_shortest_queue_is_taken_then_the_fewest_running_then_the_longest_waiting() -> None:
    placement, weights = flat(a=1.0, b=1.0, c=1.0)
    load = Load()
    load.queue = {"a": 5, "b": 2, "c": 2}
    load.running = {"a": 0, "b": 9, "c": 3}
    router = router_of("shortest_queue", weights=weights, placement=placement, load=load)
    assert firsts(router, 2) == ["c", "c"]
    load.running["c"] = 9
    assert firsts(router, 4) == ["b", "c", "b", "c"]


def test_swarm_shares_by_what_was_measured_and_follows_when_it_changes() -> None:
    placement, weights = flat(a=1.0, b=1.0)
    load = Load()
    load.rates = {"a": 300.0, "b": 100.0}
    router = router_of("swarm", weights=weights, placement=placement, load=load)
    assert Counter(firsts(router, 400))["a"] == pytest.approx(300, abs=2)
    load.rates = {"a": 100.0, "b": 300.0}
    assert Counter(firsts(router, 400))["a"] == pytest.approx(100, abs=4)


def test_swarm_tries_whom_nobody_measured_and_forgives_no_one_a_long_absence() -> None:
    placement, weights = flat(a=1.0, b=1.0)
    load = Load()
    load.rates = {"a": 100.0}
    router = router_of("swarm", weights=weights, placement=placement, load=load)
    assert Counter(firsts(router, 20))["b"] == 10
    for _ in range(1000):
        router.choose(SMALL, masked=("b",))
    assert Counter(firsts(router, 20))["b"] <= 11


@pytest.mark.parametrize("name", ROUTER_NAMES)
def test_a_node_that_is_new_in_a_plan_does_not_swallow_the_traffic(name: str) -> None:
    placement, weights = flat(a=1.0, b=1.0)
    load = Load()
    load.rates = {"a": 10.0, "b": 10.0}
    before = router_of(name, weights=weights, placement=placement, load=load)
    for _ in range(1001):
        before.choose(SMALL)
    placement, weights = flat(a=1.0, b=1.0, c=1.0)
    after = router_of(name, weights=weights, placement=placement, load=load)
    after.take_over(before)
    shares = Counter(firsts(after, 48))
    assert shares["c"] == pytest.approx(16, abs=8 if name in ("random",) else 2)


def test_a_plan_change_keeps_whose_turn_it_was() -> None:
    placement, weights = flat(a=3.0, b=1.0)
    for name in ("iwrr", "published", "round_robin", "weighted_round_robin"):
        for turns in range(9):
            kept, before = (router_of(name, weights=weights, placement=placement) for _ in range(2))
            firsts(kept, turns), firsts(before, turns)
            after = router_of(name, weights=weights, placement=placement)
            after.take_over(before)
            assert firsts(after, 12) == firsts(kept, 12), (name, turns)
