"""Where the time of requests went that whole-model instances answered."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from coordinator_doubles import Clock, serving_plan

from planner.domain.pipeline import Pipeline, PipelineStage
from runtime.coordinator.request_life import Origin, RequestLife
from runtime.coordinator.tracing import Tracer
from runtime.protocol.request_trace import PartKind, PartPhase, RequestTrace


def trace(
    *,
    sent: Sequence[tuple[float, str]] = ((1000.5, "a"),),
    tokens: Sequence[float] = (1001.0, 1001.5, 1003.0),
) -> RequestTrace:
    """Of a request that came at second 1000 and ended at 1004."""
    clock = Clock()
    tracer = Tracer(traces_per_s=1.0, clock=clock, unix_time=lambda: 1e9)
    life = RequestLife(arrived_at=clock.now, origin=Origin(), prompt_tokens=7)
    for at_s, node in sent:
        stage = PipelineStage(node=node, first=0, end=4)
        life.follow(Pipeline(stages=(stage,)), now=at_s)
    for at_s in tokens:
        life.note_token(now=at_s)
    clock.now += 4
    tracer.ended_at_instances(life, serving_plan(Path("model"), generation=2))
    (told,) = tracer.waiting()
    return told


def seconds(of: RequestTrace) -> list[tuple[str, PartKind, PartPhase, float]]:
    assert sum(part.seconds for part in of.parts) == pytest.approx(of.e2e_s)
    assert len(of.rows) == len(of.parts)
    return [(part.node, part.kind, part.phase, pytest.approx(part.seconds)) for part in of.parts]


def test_the_parts_of_a_streamed_answer_add_up_to_its_time() -> None:
    told = trace()
    assert seconds(told) == [
        ("coordinator", PartKind.QUEUE, PartPhase.PROMPT, 0.5),
        ("a", PartKind.ENGINE, PartPhase.PROMPT, 0.5),
        ("a", PartKind.ENGINE, PartPhase.DECODE, 2.0),
        ("coordinator", PartKind.ENDING, PartPhase.DECODE, 1.0),
    ]
    assert [row.spans[0][3] for row in told.rows] == [1, 1, 3, 1]
    assert (told.queue_s, told.ttft_s, told.e2e_s, told.attempts) == (0.5, 1.0, 4.0, 1)
    assert told.token_times_s == (1.0, 1.5, 3.0)
    assert [(stage.node, stage.first, stage.end) for stage in told.pipeline] == [("a", 0, 4)]


def test_an_instance_that_failed_cost_what_was_lost_there() -> None:
    told = trace(sent=[(1000.0, "a"), (1000.75, "b")])
    assert seconds(told)[0] == ("a", PartKind.LOST, PartPhase.PROMPT, 0.75)
    assert [stage.node for stage in told.pipeline] == ["b"]
    assert told.attempts == 2


def test_of_an_answer_that_did_not_stream_only_the_whole_is_known() -> None:
    told = trace(tokens=[])
    assert seconds(told)[1:] == [("a", PartKind.ENGINE, PartPhase.PROMPT, 3.5)]
    assert told.ttft_s is None


def test_what_no_instance_had_was_queued() -> None:
    told = trace(sent=[], tokens=[])
    assert seconds(told) == [("coordinator", PartKind.QUEUE, PartPhase.PROMPT, 4.0)]
    assert told.pipeline == ()
