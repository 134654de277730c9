"""Packs the results of a step into messages: one per next hop, one per receiver of tokens."""

from collections.abc import Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass

from runtime.engine.backend import Drawn, Rows
from runtime.engine.sequence import Work
from runtime.protocol.coordinators import is_coordinator
from runtime.protocol.data import DType, Entry, Flag, Kind, Message, Reason
from runtime.protocol.engine_options import MessageRule
from runtime.protocol.sampled import Logprobs, pack_sampled


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message, and the node or coordinator it goes to."""

    peer: str
    message: Message


def rows_messages(
    step: Items[Work], rows: Rows, *, dtype: DType, rule: MessageRule
) -> list[Outgoing]:
    """ROWS messages: to each next stage one of decodes and one of prompts, or one per request.

    Of each generation its own. The route goes along once per request.
    """
    entries: dict[tuple[str, int, Flag, int], list[Entry]] = {}
    spans: dict[tuple[str, int, Flag, int], list[tuple[int, int]]] = {}
    start = 0
    for work in step:
        sequence, chunk = work.sequence, work.chunk
        start, rows_start = start + chunk.n_tokens, start
        if sequence.is_last_stage:
            continue
        is_prompt = chunk.position < sequence.route.prompt_tokens
        lane = Flag.PREFILL if is_prompt else Flag.NONE
        together = (sequence.next_stage, sequence.generation, lane, _message_of(work, rule))
        entries.setdefault(together, []).append(
            Entry(
                request=sequence.key.request,
                epoch=sequence.key.epoch,
                position=chunk.position,
                n_tokens=chunk.n_tokens,
                hop=sequence.hop + 1,
                flags=lane | (Flag.PROMPT_END if chunk.is_sampled else Flag.NONE),
                route=None if sequence.route_sent else sequence.route,
            )
        )
        sequence.route_sent = True
        spans.setdefault(together, []).append((rows_start, start))
    return [
        Outgoing(
            peer=together[0],
            message=Message(
                kind=Kind.ROWS,
                generation=together[1],
                entries=tuple(entries[together]),
                dtype=dtype,
                payload=rows.gather(spans[together]),
            ),
        )
        for together in entries
    ]


def sampled_messages(
    step: Items[Work], drawn: Mapping[int, Drawn], *, max_context_tokens: int, rule: MessageRule
) -> list[Outgoing]:
    """Each token, by the place of its work in the step, to its request's coordinator, and to the
    stage where the request goes on.

    Straight back to the first stage, not through the coordinator: one hop less per token.
    """
    receivers: dict[tuple[str, int, int], list[tuple[Entry, Drawn]]] = {}
    for place, pick in drawn.items():
        work = step[place]
        sequence, message = work.sequence, _message_of(work, rule)
        token = _sampled_entry(work, _finish_reason(work, pick, max_context_tokens)), pick
        for peer in (sequence.route.coordinator, sequence.first_stage):
            receivers.setdefault((peer, sequence.generation, message), []).append(token)
    return [
        Outgoing(peer=peer, message=_sampled_message(tokens, peer, generation))
        for (peer, generation, _), tokens in receivers.items()
    ]


def _finish_reason(work: Work, drawn: Drawn, max_context_tokens: int) -> Reason:
    """STOP for a stop token or the end of a grammar, LENGTH when max_tokens or the context is used
    up, else NONE."""
    route = work.sequence.route
    position = work.chunk.end
    if drawn.is_final or drawn.token_id in route.sampling.stop_token_ids:
        return Reason.STOP
    generated = position - route.prompt_tokens + 1
    if generated >= route.sampling.max_tokens or position >= max_context_tokens:
        return Reason.LENGTH
    return Reason.NONE


def _message_of(work: Work, rule: MessageRule) -> int:
    """Rows and tokens of the same number and receiver share a message."""
    return 0 if rule is MessageRule.PER_HOP else work.sequence.key.request


def _sampled_message(tokens: Items[tuple[Entry, Drawn]], peer: str, generation: int) -> Message:
    """Logprobs go to coordinators only; a stage has no use for them."""
    entries = [entry for entry, _ in tokens]
    logprobs = [drawn.logprobs if is_coordinator(peer) else None for _, drawn in tokens]
    return Message(
        kind=Kind.SAMPLED,
        generation=generation,
        entries=tuple(map(_with_logprobs, entries, logprobs)),
        dtype=DType.INT32,
        payload=pack_sampled([drawn.token_id for _, drawn in tokens], logprobs),
    )


def _with_logprobs(entry: Entry, logprobs: Logprobs | None) -> Entry:
    return entry if logprobs is None else entry._replace(flags=entry.flags | Flag.LOGPROBS)


def _sampled_entry(work: Work, reason: Reason) -> Entry:
    return Entry(
        request=work.sequence.key.request,
        epoch=work.sequence.key.epoch,
        position=work.chunk.end,
        n_tokens=1,
        hop=0,
        flags=Flag.NONE if reason is Reason.NONE else Flag.FINISHED,
        reason=reason,
    )
