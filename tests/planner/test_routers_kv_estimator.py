"""The KV estimate: whole pages, growth, exact release (Helix §5.2)."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.domain.pipeline import Pipeline, PipelineStage
from planner.routers.base import RequestSize
from planner.routers.kv_estimator import KvEstimateError, KvEstimator
from planner.routers.output_length import OutputLengthEstimate
from tests.examples import examples

PATHS = (
    Pipeline(stages=(PipelineStage(node="a", first=0, end=6),)),
    Pipeline(
        stages=(
            PipelineStage(node="b", first=0, end=2),
            PipelineStage(node="a", first=2, end=6),
        )
    ),
)


def estimator(*, page_tokens: int = 16, capacity: float = 1000.0) -> KvEstimator:
    return KvEstimator(
        capacity_token_layers={"a": capacity, "b": capacity}, page_tokens=page_tokens
    )


def size(prompt: int, output: int) -> RequestSize:
    return RequestSize(prompt_tokens=prompt, predicted_output_tokens=output)


def test_a_request_reserves_whole_pages_of_the_layers_it_uses() -> None:
    kv = estimator()
    kv.admit(1, PATHS[1], size=size(10, 7))  # 17 tokens: 2 pages of 16
    assert kv.used_token_layers("b") == 32 * 2
    assert kv.used_token_layers("a") == 32 * 4


def test_an_answer_longer_than_predicted_grows_page_by_page_and_is_released_whole() -> None:
    kv = estimator()
    kv.admit(1, PATHS[0], size=size(10, 6))
    kv.grow(1, total_tokens=16)
    assert kv.used_token_layers("a") == 16 * 6
    kv.grow(1, total_tokens=17)
    assert kv.used_token_layers("a") == 32 * 6
    kv.release(1)
    assert kv.used_token_layers("a") == 0


def test_what_others_hold_is_not_to_be_had_but_by_whoever_has_nothing_there() -> None:
    kv = estimator(page_tokens=1, capacity=1000.0)
    kv.set_elsewhere("a", token_layers=600.0)
    assert kv.rooms["a"] == 1000.0
    kv.admit(1, PATHS[0], size=size(10, 5))
    assert kv.rooms["a"] == 900.0 - 15 * 6 - 600.0
    kv.set_capacity("a", token_layers=2000.0)
    assert kv.rooms["a"] == 1800.0 - 15 * 6 - 600.0
    kv.set_elsewhere("a", token_layers=0.0)
    assert kv.rooms["a"] == 1800.0 - 15 * 6


def test_room_ends_at_the_high_water_mark_but_an_idle_node_may_be_filled() -> None:
    kv = estimator(page_tokens=1, capacity=100.0)
    assert kv.has_room("a", size=size(90, 10), num_layers=1)
    assert not kv.has_room("a", size=size(91, 10), num_layers=1)
    kv.admit(1, Pipeline(stages=(PipelineStage(node="a", first=0, end=1),)), size=size(1, 0))
    assert kv.has_room("a", size=size(79, 10), num_layers=1)
    assert not kv.has_room("a", size=size(80, 10), num_layers=1)


def test_rooms_follow_reservations_growth_release_and_a_new_capacity() -> None:
    kv = estimator(page_tokens=1, capacity=100.0)
    rooms, idle = kv.rooms, kv.rooms_when_idle
    assert rooms == idle == {"a": 100.0, "b": 100.0}
    kv.admit(1, PATHS[1], size=size(5, 5))
    assert rooms == {"a": 90.0 - 40, "b": 90.0 - 20}
    kv.grow(1, total_tokens=12)
    kv.set_capacity("b", token_layers=50.0)
    assert rooms == {"a": 90.0 - 48, "b": 45.0 - 24}
    assert kv.has_room("b", size=size(10, 11), num_layers=1)
    assert not kv.has_room("b", size=size(11, 11), num_layers=1)
    kv.release(1)
    assert rooms == idle == {"a": 100.0, "b": 50.0}


def test_contradictions_are_refused_by_name() -> None:
    kv = estimator()
    kv.admit(1, PATHS[0], size=size(1, 1))
    with pytest.raises(KvEstimateError, match="request 1 is admitted already"):
        kv.admit(1, PATHS[0], size=size(1, 1))
    with pytest.raises(KvEstimateError, match="request 2 holds nothing"):
        kv.release(2)
    with pytest.raises(KvEstimateError, match="'ghost' has no KV capacity"):
        kv.has_room("ghost", size=size(1, 1), num_layers=1)
    with pytest.raises(ValueError, match="at least one prompt token"):
        size(0, 5)


@given(data=st.data(), page_tokens=st.integers(1, 32))
@settings(max_examples=examples(100))
def test_whatever_happens_nothing_is_negative_and_all_released_is_zero(
    data: st.DataObject, page_tokens: int
) -> None:
    kv = estimator(page_tokens=page_tokens)
    expected: dict[int, tuple[Pipeline, int]] = {}  # request -> its path and most tokens
    for request in range(data.draw(st.integers(1, 12))):
        prompt, output = data.draw(st.integers(1, 200)), data.draw(st.integers(0, 200))
        path = data.draw(st.sampled_from(PATHS))
        kv.admit(request, path, size=size(prompt, output))
        expected[request] = (path, prompt + output)
        for grown in data.draw(st.lists(st.sampled_from(sorted(expected)), max_size=4)):
            tokens = data.draw(st.integers(1, 600))
            kv.grow(grown, total_tokens=tokens)
            expected[grown] = (expected[grown][0], max(tokens, expected[grown][1]))
        if data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(sorted(expected)))
            kv.release(gone)
            del expected[gone]
        for node in ("a", "b"):
            assert kv.used_token_layers(node) == sum(
                math.ceil(tokens / page_tokens) * page_tokens * (stage.end - stage.first)
                for path, tokens in expected.values()
                for stage in path.stages
                if stage.node == node
            )
    for request in list(expected):
        kv.release(request)
    assert kv.used_token_layers("a") == kv.used_token_layers("b") == 0


def test_another_plan_takes_from_the_same_pages_by_its_own_mark() -> None:
    kv = estimator(page_tokens=1, capacity=100.0)
    path = Pipeline(stages=(PipelineStage(node="a", first=0, end=1),))
    kv.admit(1, path, size=size(40, 10))
    kv.widen(["a", "c"], high_water=0.6)
    assert kv.has_room("a", size=size(10, 0), num_layers=1)
    assert not kv.has_room("a", size=size(11, 0), num_layers=1)
    assert not kv.has_room("c", size=size(1, 0), num_layers=1)
    kv.set_capacity("c", token_layers=10.0)
    assert kv.has_room("c", size=size(10, 0), num_layers=1)
    kv.release(1)
    assert kv.has_room("a", size=size(100, 0), num_layers=1)


def test_the_predicted_output_follows_what_is_seen_and_never_exceeds_max_tokens() -> None:
    estimate = OutputLengthEstimate(mean_output_tokens=100.0)
    assert estimate.predict(max_tokens=1000) == 100
    assert estimate.predict(max_tokens=7) == 7
    for _ in range(1000):
        estimate.observe(20)
    assert 20 <= estimate.predict(max_tokens=1000) <= 22
