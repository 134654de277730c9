"""What coordinators and simulations know of their nodes' load."""

import pytest

from planner.domain.pipeline import Pipeline, PipelineStage
from planner.routers.base import RequestSize
from planner.routers.node_load import NodeLoad

LONG = Pipeline(
    stages=(PipelineStage(node="a", first=0, end=2), PipelineStage(node="b", first=2, end=4))
)
SHORT = Pipeline(stages=(PipelineStage(node="a", first=0, end=4),))
SIZE = RequestSize(prompt_tokens=100, predicted_output_tokens=10)


def test_who_waits_for_a_first_token_is_queued_at_every_stage() -> None:
    load = NodeLoad(clock=lambda: 0.0)
    load.admit(1, LONG, size=SIZE)
    load.admit(2, SHORT, size=SIZE)
    assert [load.in_flight("a"), load.queued("a"), load.queued("b")] == [2, 2, 1]
    load.first_token(1)
    assert [load.in_flight("a"), load.queued("a"), load.queued("b")] == [2, 1, 0]
    load.release(1, total_tokens=120)
    load.release(2, total_tokens=100)
    assert [load.in_flight("a"), load.queued("a"), load.in_flight("b")] == [0, 0, 0]
    assert load.tokens_per_s("a") is None


def test_who_begins_anew_runs_but_waits_for_no_first_token() -> None:
    load = NodeLoad(clock=lambda: 0.0)
    load.admit(1, LONG, size=SIZE, is_new=False)
    assert [load.in_flight("b"), load.queued("b")] == [1, 0]
    load.release(1, total_tokens=101)
    assert [load.in_flight("b"), load.queued("b")] == [0, 0]


def test_prompts_count_with_the_first_token_and_outputs_when_the_request_leaves() -> None:
    now = [0.0]
    load = NodeLoad(clock=lambda: now[0])
    for number in range(100):
        load.admit(number, LONG, size=SIZE)
        load.first_token(number)
        load.release(number, total_tokens=150)
        rate = load.tokens_per_s("a")
        now[0] += 3.0
    assert rate == pytest.approx(50.0)
    assert load.tokens_per_s("c") is None


def test_a_rate_follows_what_passes_the_node() -> None:
    now = [0.0]
    load = NodeLoad(clock=lambda: now[0])
    for tokens_per_s in (50, 20):
        for number in range(600):
            now[0] += 1.0
            load.admit(number, SHORT, size=RequestSize(prompt_tokens=1, predicted_output_tokens=9))
            load.first_token(number)
            load.release(number, total_tokens=tokens_per_s)
            rate = load.tokens_per_s("a")
        assert rate == pytest.approx(tokens_per_s)


def test_a_prompt_that_was_never_answered_passed_nobody() -> None:
    now = [0.0]
    load = NodeLoad(clock=lambda: now[0])
    for number in range(10):
        load.tokens_per_s("a")
        load.admit(number, SHORT, size=SIZE)
        load.release(number, total_tokens=100)
        now[0] += 3.0
    assert load.tokens_per_s("a") is None
