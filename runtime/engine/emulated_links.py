"""Delays what a stage sends as the links of its emulated node would.

One thread owns all sending: a message leaves when its link has transmitted what went before it, and
is handed on when its last byte would arrive. The bytes counted are those of the emulated model.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from runtime.protocol.data import Flag, Kind, Message
from runtime.protocol.emulation import EmulatedLink, Emulation
from runtime.transport.base import Received, SendError, Transport

logger = logging.getLogger(__name__)

_CLOSE_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    message: Message
    seconds: float  # that the link needs for it


class LinkQueue:
    """One directed link: transmits one message at a time; times of a monotonic clock.

    Urgent messages go before others that wait, but interrupt none.
    """

    def __init__(self, *, latency_s: float) -> None:
        self._latency_s = latency_s
        self._urgent: deque[_Waiting] = deque()
        self._bulk: deque[_Waiting] = deque()
        self._sending: tuple[float, Message] | None = None  # when it ends, what
        self._flying: deque[tuple[float, Message]] = deque()  # when it arrives, what

    def push(self, message: Message, *, seconds: float, urgent: bool, now_s: float) -> None:
        """Queue a message that the link transmits for so long. `advance` to `now_s` first."""
        waiting = _Waiting(message=message, seconds=seconds)
        (self._urgent if urgent else self._bulk).append(waiting)
        if self._sending is None:
            self._begin(now_s)

    def advance(self, now_s: float) -> list[Message]:
        """What has arrived by `now_s`, in that order."""
        while self._sending is not None and self._sending[0] <= now_s:
            ended_s, message = self._sending
            self._flying.append((ended_s + self._latency_s, message))
            self._begin(ended_s)
        arrived = []
        while self._flying and self._flying[0][0] <= now_s:
            arrived.append(self._flying.popleft()[1])
        return arrived

    def next_s(self) -> float | None:
        """When something happens next; None while nothing is under way."""
        moments = [self._flying[0][0]] if self._flying else []
        moments += [self._sending[0]] if self._sending else []
        return min(moments, default=None)

    def _begin(self, now_s: float) -> None:
        queue = self._urgent or self._bulk
        self._sending = None
        if queue:
            waiting = queue.popleft()
            self._sending = (now_s + waiting.seconds, waiting.message)


class EmulatedLinks:
    """Implements `Transport` over `inner`, whose receiving half is used as it is."""

    def __init__(
        self,
        inner: Transport,
        emulation: Emulation,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner = inner
        self._emulation = emulation
        self._clock = clock
        self._links: dict[str, LinkQueue] = {}
        self._condition = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._send_all, name="emulated-links", daemon=True)
        self._thread.start()

    def send(self, peer: str, message: Message) -> None:
        """Never raises: what cannot be sent is logged when it should arrive."""
        link = self._emulation.links.get(peer, _AT_ONCE)
        scale = self._emulation.time_scale
        with self._condition:
            queue = self._links.get(peer)
            if queue is None:
                queue = self._links[peer] = LinkQueue(latency_s=link.latency_s * scale)
            queue.push(
                message,
                seconds=wire_bytes(message, self._emulation) / link.bandwidth_bytes_per_s * scale,
                urgent=self._emulation.transmission == "fifo" or not is_prefill(message),
                now_s=self._clock(),
            )
            self._condition.notify()

    def receive(self, *, timeout_s: float) -> list[Received]:
        return self._inner.receive(timeout_s=timeout_s)

    def close(self) -> None:
        """What is still under way is lost."""
        with self._condition:
            self._closed = True
            self._condition.notify()
        self._thread.join(_CLOSE_PATIENCE_S)
        self._inner.close()

    def _send_all(self) -> None:
        while (arrived := self._wait()) is not None:
            for peer, message in arrived:
                try:
                    self._inner.send(peer, message)
                except SendError as error:
                    logger.error("cannot send to %s: %s", peer, error)

    def _wait(self) -> list[tuple[str, Message]] | None:
        """What arrives next, once it does; None when closed."""
        with self._condition:
            while not self._closed:
                now_s = self._clock()
                arrived = [
                    (peer, message)
                    for peer, queue in self._links.items()
                    for message in queue.advance(now_s)
                ]
                if arrived:
                    return arrived
                moments = [queue.next_s() for queue in self._links.values()]
                next_s = min((moment for moment in moments if moment is not None), default=None)
                self._condition.wait(None if next_s is None else max(0.0, next_s - self._clock()))
            return None


_AT_ONCE = EmulatedLink(bandwidth_bytes_per_s=1e15, latency_s=0.0)


def is_prefill(message: Message) -> bool:
    """Whether it carries rows of prompts; decodes go in messages of their own."""
    return any(Flag.PREFILL in entry.flags for entry in message.entries)


def wire_bytes(message: Message, emulation: Emulation) -> float:
    """What the message would weigh between nodes that run the model."""
    tokens = sum(entry.n_tokens for entry in message.entries)
    if message.kind == Kind.ROWS:
        return tokens * emulation.model.activation_bytes_per_token
    if message.kind == Kind.SAMPLED:
        return tokens * emulation.model.token_bytes
    return 0.0
