"""Packs the results of a step into messages: one per next hop, one per receiver of tokens.

Legend: T rows of the step, D hidden.
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from planner.domain.cluster import COORDINATOR
from runtime.engine.model_runner import Work
from runtime.protocol.data import DType, Entry, Flag, Kind, Message, Reason
from runtime.protocol.engine_options import MessageRule

WIRE_DTYPES = {
    torch.float32: DType.FLOAT32,
    torch.float16: DType.FLOAT16,
    torch.bfloat16: DType.BFLOAT16,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message, and the node or coordinator it goes to."""

    peer: str
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """The token that follows the chunk of `work`, and whether and why it is the last one."""

    work: Work
    token_id: int
    reason: Reason


def finish_reason(work: Work, *, token_id: int, max_context_tokens: int) -> Reason:
    """STOP for a stop token, LENGTH when max_tokens or the context is used up, else NONE."""
    route = work.sequence.route
    position = work.chunk.end
    if token_id in route.sampling.stop_token_ids:
        return Reason.STOP
    generated = position - route.prompt_tokens + 1
    if generated >= route.sampling.max_tokens or position >= max_context_tokens:
        return Reason.LENGTH
    return Reason.NONE


def rows_messages(
    step: Items[Work], hidden_TD: Tensor, *, generation: int, rule: MessageRule
) -> list[Outgoing]:
    """ROWS messages, one per next stage or request; the route goes along once per request.

    `hidden_TD`: the step's rows, float of the model, any device.
    """
    entries: dict[tuple[str, int], list[Entry]] = {}
    rows: dict[tuple[str, int], list[Tensor]] = {}
    start = 0
    for work in step:
        sequence, chunk = work.sequence, work.chunk
        start, rows_start = start + chunk.n_tokens, start
        if sequence.is_last_stage:
            continue
        together = (sequence.next_stage, _message_of(work, rule))
        entries.setdefault(together, []).append(
            Entry(
                request=sequence.key.request,
                epoch=sequence.key.epoch,
                position=chunk.position,
                n_tokens=chunk.n_tokens,
                hop=sequence.hop + 1,
                flags=Flag.PROMPT_END if chunk.is_sampled else Flag.NONE,
                route=None if sequence.route_sent else sequence.route,
            )
        )
        sequence.route_sent = True
        rows.setdefault(together, []).append(hidden_TD[rows_start:start])
    return [
        Outgoing(
            peer=together[0],
            message=Message(
                kind=Kind.ROWS,
                generation=generation,
                entries=tuple(entries[together]),
                dtype=WIRE_DTYPES[hidden_TD.dtype],
                payload=_bytes_of(torch.cat(rows[together])),
            ),
        )
        for together in entries
    ]


def sampled_messages(
    sampled: Items[Sampled], *, generation: int, rule: MessageRule
) -> list[Outgoing]:
    """All tokens to the coordinator, and each to the stage where its request goes on.

    Straight back to the first stage, not through the coordinator: one hop less per token.
    """
    receivers: dict[tuple[str, int], list[Sampled]] = {}
    for token in sampled:
        message = _message_of(token.work, rule)
        receivers.setdefault((COORDINATOR, message), []).append(token)
        receivers.setdefault((token.work.sequence.first_stage, message), []).append(token)
    return [
        Outgoing(peer=peer, message=_sampled_message(tokens, generation))
        for (peer, _), tokens in receivers.items()
    ]


def _message_of(work: Work, rule: MessageRule) -> int:
    """Rows and tokens of the same number and receiver share a message."""
    return 0 if rule is MessageRule.PER_HOP else work.sequence.key.request


def _sampled_message(tokens: Items[Sampled], generation: int) -> Message:
    entries = tuple(
        Entry(
            request=token.work.sequence.key.request,
            epoch=token.work.sequence.key.epoch,
            position=token.work.chunk.end,
            n_tokens=1,
            hop=0,
            flags=Flag.NONE if token.reason is Reason.NONE else Flag.FINISHED,
            reason=token.reason,
        )
        for token in tokens
    )
    ids = np.array([token.token_id for token in tokens], dtype="<i4")
    return Message(
        kind=Kind.SAMPLED,
        generation=generation,
        entries=entries,
        dtype=DType.INT32,
        payload=ids.tobytes(),
    )


def _bytes_of(rows_TD: Tensor) -> memoryview:
    """The memory of the rows as bytes; the view keeps the tensor alive until it is sent."""
    return rows_TD.cpu().contiguous().view(torch.uint8).numpy().data.cast("B")
