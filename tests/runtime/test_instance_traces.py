"""Where the time of requests went that whole-model instances answered."""

import pytest

from planner.domain.pipeline import Pipeline, PipelineStage
from runtime.coordinator.instance_traces import EndedRequest, trace_of_ended
from runtime.protocol.instance_orders import PIPELINES
from runtime.protocol.request_trace import PartKind, PartPhase, RequestTrace

STAGES = {
    f"{node}.0": Pipeline(stages=(PipelineStage(node=node, first=0, end=4),)) for node in "ab"
}


def ended(**changes: object) -> EndedRequest:
    fields: dict[str, object] = {
        "arrived_s": 100.0,
        "ended_s": 104.0,
        "sent": [(100.5, "a.0")],
        "token_times_s": [101.0, 101.5, 103.0],
        "last_token_s": 103.0,
        "outcome": "stop",
        "prompt_tokens": 7,
        "output_tokens": 3,
    }
    return EndedRequest(**{**fields, **changes})  # type: ignore[arg-type]


def trace(of: EndedRequest) -> RequestTrace:
    return trace_of_ended(of, generation=2, model_name="llama", arrived_at=1e9, pipelines=STAGES)


def seconds(of: RequestTrace) -> list[tuple[str, PartKind, PartPhase, float]]:
    assert sum(part.seconds for part in of.parts) == pytest.approx(of.e2e_s)
    assert len(of.rows) == len(of.parts)
    return [(part.node, part.kind, part.phase, pytest.approx(part.seconds)) for part in of.parts]


def test_the_parts_of_a_streamed_answer_add_up_to_its_time() -> None:
    told = trace(ended())
    assert seconds(told) == [
        ("coordinator", PartKind.QUEUE, PartPhase.PROMPT, 0.5),
        ("a", PartKind.ENGINE, PartPhase.PROMPT, 0.5),
        ("a", PartKind.ENGINE, PartPhase.DECODE, 2.0),
        ("coordinator", PartKind.ENDING, PartPhase.DECODE, 1.0),
    ]
    assert (told.queue_s, told.ttft_s, told.e2e_s, told.attempts) == (0.5, 1.0, 4.0, 1)
    assert told.token_times_s == (1.0, 1.5, 3.0)
    assert [(stage.node, stage.first, stage.end) for stage in told.pipeline] == [("a", 0, 4)]


def test_an_instance_that_failed_cost_what_was_lost_there() -> None:
    told = trace(ended(sent=[(100.0, "a.0"), (100.75, "b.0")]))
    assert seconds(told)[0] == ("a", PartKind.LOST, PartPhase.PROMPT, 0.75)
    assert [stage.node for stage in told.pipeline] == ["b"]
    assert told.attempts == 2


def test_of_an_answer_that_did_not_stream_only_the_whole_is_known() -> None:
    told = trace(ended(token_times_s=[], last_token_s=0.0))
    assert seconds(told)[1:] == [("a", PartKind.ENGINE, PartPhase.PROMPT, 3.5)]
    assert told.ttft_s is None


@pytest.mark.parametrize("sent", [[], [(100.5, PIPELINES)]])
def test_what_no_instance_had_was_queued(sent: list[tuple[float, str]]) -> None:
    told = trace(ended(sent=sent, token_times_s=[], outcome="cancelled"))
    assert seconds(told) == [("coordinator", PartKind.QUEUE, PartPhase.PROMPT, 4.0)]
    assert told.pipeline == ()
