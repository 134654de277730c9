"""Made-up traces for tests of what helixweb does with them."""

from typing import Any

from runtime.protocol.data import Hop
from runtime.protocol.request_trace import (
    PartKind,
    PartPhase,
    RequestTrace,
    TracePart,
    TraceRow,
)

PARTS = (
    ("coordinator", None, PartKind.QUEUE, PartPhase.PROMPT, 0.1),
    ("coordinator", "tower", PartKind.TRANSFER, PartPhase.PROMPT, 0.01),
    ("tower", None, PartKind.WAIT, PartPhase.PROMPT, 0.02),
    ("tower", None, PartKind.COMPUTE, PartPhase.PROMPT, 0.3),
    ("tower", "laptop", PartKind.TRANSFER, PartPhase.PROMPT, 0.02),
    ("laptop", None, PartKind.COMPUTE, PartPhase.PROMPT, 0.2),
    ("laptop", "tower", PartKind.TRANSFER, PartPhase.DECODE, 0.05),
    ("tower", None, PartKind.COMPUTE, PartPhase.DECODE, 0.5),
    ("laptop", None, PartKind.COMPUTE, PartPhase.DECODE, 0.79),
    ("laptop", "coordinator", PartKind.TRANSFER, PartPhase.DECODE, 0.01),
)


def made_up_trace(number: int, **changes: Any) -> RequestTrace:
    """A request of two seconds through tower and laptop; 0.66 s to its first token."""
    parts, rows, at_s = [], [], 0.0
    for node, to, kind, phase, seconds in PARTS:
        parts.append(TracePart(node=node, to=to, kind=kind, phase=phase, seconds=seconds, count=1))
        spans = ((at_s, at_s + seconds, seconds, 1),)
        rows.append(TraceRow(node=node, to=to, kind=kind, phase=phase, spans=spans))
        at_s += seconds
    values: dict[str, Any] = {
        "request": f"{number:016x}",
        "generation": 1,
        "model_name": "tiny-llama",
        "arrived_at": 1_772_366_400.0 + number,
        "outcome": "length",
        "prompt_tokens": 64,
        "output_tokens": 5,
        "queue_s": 0.1,
        "ttft_s": 0.66,
        "e2e_s": 2.0,
        "attempts": 1,
        "pipeline": (
            Hop(node="tower", first=0, end=3),
            Hop(node="laptop", first=3, end=4),
        ),
        "parts": tuple(parts),
        "rows": tuple(rows),
        "token_times_s": (0.66, 1.0, 1.33, 1.66, 2.0),
        **changes,
    }
    return RequestTrace.model_validate(values)
