"""Where a request stands in the traces of whoever sent it: W3C Trace Context's `traceparent`.

https://www.w3.org/TR/trace-context/ of which only version 00 is written and read.
"""

import re
import secrets
from contextvars import ContextVar
from dataclasses import dataclass

HEADER = "traceparent"
CHAT, COMPLETION = "chat", "text_completion"  # gen_ai.operation.name
_PARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceContext:
    """Ids in hex. `parent_id` is empty where the client sent none; `came` is what it sent.

    `span_id` is that of the span that is told of this request, if one is (`is_told`).
    """

    trace_id: str
    parent_id: str
    span_id: str
    is_sampled: bool
    is_told: bool
    came: str
    operation: str = CHAT

    @property
    def onward(self) -> str:
        """What whoever is asked next is sent; empty: nothing."""
        if not self.is_told:
            return self.came
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.is_sampled else '00'}"


TRACE: ContextVar[TraceContext | None] = ContextVar("helix_trace", default=None)


def context_of(header: str | None, *, is_told: bool, operation: str) -> TraceContext | None:
    """Of a request that came with that header; None: there is nothing to tell or to pass on.

    What is no traceparent counts as none, as the standard has it.
    """
    found = _PARENT.fullmatch(header or "")
    if found is not None and (int(found[1], 16) == 0 or int(found[2], 16) == 0):
        found = None
    if found is None and not is_told:
        return None
    return TraceContext(
        trace_id=found[1] if found else _id(16),
        parent_id=found[2] if found else "",
        span_id=_id(8),
        is_sampled=bool(int(found[3], 16) & 1) if found else True,
        is_told=is_told,
        came=found[0] if found else "",
        operation=operation,
    )


def _id(size: int) -> str:
    """Never all zeros."""
    return (secrets.randbits(8 * size) or 1).to_bytes(size, "big").hex()
