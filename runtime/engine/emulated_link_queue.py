"""One emulated link: what waits for it, what it transmits, what is on its way; no clock of its own.

The bytes counted are those of the emulated model.
"""

import math
from collections import deque
from dataclasses import dataclass

from planner.domain.model_spec import ModelSpec
from runtime.protocol.data import Kind, Message
from runtime.protocol.emulation import EmulatedLink, EmulatedNetwork

_AT_ONCE = EmulatedLink(bandwidth_bytes_per_s=1e15, latency_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    message: Message
    seconds: float  # that the link still needs for it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sending:
    waiting: _Waiting
    since_s: float
    until_s: float  # when it is through, or makes room
    urgent: bool


class LinkQueue:
    """The emulated link to `peer`; emulated coordinators and stages send through it.

    It has one direction and transmits one message at a time. Times are of a monotonic clock, those
    of the `network` stretched by its time scale.

    Where decodes go first, messages of prompts wait for all others, and one that is being
    transmitted makes room for them at the end of a piece.
    """

    def __init__(self, peer: str, network: EmulatedNetwork) -> None:
        link, piece_bytes = network.links.get(peer, _AT_ONCE), network.piece_bytes
        self._model = network.model
        self._s_per_byte = network.time_scale / link.bandwidth_bytes_per_s
        self._latency_s = link.latency_s * network.time_scale
        self._decode_first = network.transmission == "decode_first"
        self._piece_s = None if piece_bytes is None else piece_bytes * self._s_per_byte
        self._urgent: deque[_Waiting] = deque()
        self._bulk: deque[_Waiting] = deque()
        self._sending: _Sending | None = None
        self._flying: deque[tuple[float, Message]] = deque()  # when it arrives, what

    def push(self, message: Message, *, now_s: float) -> None:
        """Queue a message. `advance` to `now_s` first, or what has arrived by then comes later."""
        urgent = not (self._decode_first and message.is_prefill)
        seconds = wire_bytes(message, self._model) * self._s_per_byte
        waiting = _Waiting(message=message, seconds=seconds)
        (self._urgent if urgent else self._bulk).append(waiting)
        if self._sending is None:
            self._begin(now_s)
        elif urgent and not self._sending.urgent:
            self._make_room(self._sending, now_s)

    def advance(self, now_s: float) -> list[Message]:
        """What has arrived by `now_s`, in that order."""
        while self._sending is not None and self._sending.until_s <= now_s:
            self._end(self._sending)
        arrived = []
        while self._flying and self._flying[0][0] <= now_s:
            arrived.append(self._flying.popleft()[1])
        return arrived

    def next_s(self) -> float | None:
        """When something happens next; None while nothing is under way."""
        moments = [self._flying[0][0]] if self._flying else []
        moments += [self._sending.until_s] if self._sending else []
        return min(moments, default=None)

    def _begin(self, now_s: float) -> None:
        queue = self._urgent or self._bulk
        self._sending = None
        if queue:
            waiting = queue.popleft()
            self._sending = _Sending(
                waiting=waiting,
                since_s=now_s,
                until_s=now_s + waiting.seconds,
                urgent=queue is self._urgent,
            )

    def _make_room(self, sending: _Sending, now_s: float) -> None:
        """End at the next whole piece, unless it is through or makes room before."""
        if self._piece_s is None:
            return
        pieces = math.floor((now_s - sending.since_s) / self._piece_s) + 1
        until_s = sending.since_s + pieces * self._piece_s
        if until_s < sending.until_s:
            self._sending = _Sending(
                waiting=sending.waiting, since_s=sending.since_s, until_s=until_s, urgent=False
            )

    def _end(self, sending: _Sending) -> None:
        whole_s = sending.since_s + sending.waiting.seconds
        if sending.until_s < whole_s:
            rest = _Waiting(message=sending.waiting.message, seconds=whole_s - sending.until_s)
            self._bulk.appendleft(rest)
        else:
            self._flying.append((sending.until_s + self._latency_s, sending.waiting.message))
        self._begin(sending.until_s)


def wire_bytes(message: Message, model: ModelSpec) -> float:
    """What the message would weigh between nodes that run the model."""
    tokens = sum(entry.n_tokens for entry in message.entries)
    if message.kind == Kind.ROWS:
        return tokens * model.activation_bytes_per_token
    if message.kind in (Kind.PROMPT, Kind.SAMPLED):
        return tokens * model.token_bytes
    return 0.0
