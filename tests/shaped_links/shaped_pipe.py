"""One direction of a shaped link: rate, delay, loss, a queue of bounded bytes, partition.

Pure: packets go in with the time of a clock in seconds and come out when they would arrive.
"""

import random
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a direction does to packets; `rate_bytes_per_s` None: as fast as they come.

    `loss` is the share of packets that vanish, 0-1; a packet that would make more than
    `queue_bytes` wait is dropped; nothing gets through while not `up`.
    """

    rate_bytes_per_s: float | None = None
    delay_s: float = 0.0
    loss: float = 0.0
    queue_bytes: int = 2**20
    up: bool = True

    def __post_init__(self) -> None:
        if self.rate_bytes_per_s is not None and self.rate_bytes_per_s <= 0:
            raise ValueError(f"rate_bytes_per_s {self.rate_bytes_per_s} must be above 0, or None")
        if self.delay_s < 0 or not 0 <= self.loss <= 1 or self.queue_bytes < 0:
            raise ValueError(f"delay and queue must not be negative, loss within 0-1: {self}")


@dataclass(slots=True, kw_only=True)
class Counters:
    """Packets since the start."""

    delivered: int = 0
    delivered_bytes: int = 0
    lost: int = 0
    overflowed: int = 0
    cut: int = 0  # while down
    most_queued_bytes: float = 0.0


class ShapedPipe:
    """First in, first out; times passed in must not go back."""

    def __init__(self, shape: Shape, *, seed: int) -> None:
        self.shape = shape
        self.counters = Counters()
        self._random = random.Random(seed)
        self._free_s = 0.0  # when the line has sent all that was accepted
        self._flying: deque[tuple[float, bytes]] = deque()

    def push(self, packet: bytes, *, now_s: float) -> None:
        """Accept or drop a packet."""
        shape = self.shape
        if not shape.up:
            self.counters.cut += 1
            return
        begin_s = max(now_s, self._free_s)
        end_s = begin_s
        if shape.rate_bytes_per_s is not None:
            queued = (begin_s - now_s) * shape.rate_bytes_per_s
            if queued + len(packet) > shape.queue_bytes:
                self.counters.overflowed += 1
                return
            self.counters.most_queued_bytes = max(self.counters.most_queued_bytes, queued)
            end_s = begin_s + len(packet) / shape.rate_bytes_per_s
        self._free_s = end_s
        if self._random.random() < shape.loss:
            self.counters.lost += 1  # it took its time on the line
            return
        arrival_s = end_s + shape.delay_s
        if self._flying:
            arrival_s = max(arrival_s, self._flying[-1][0])  # a shorter delay reorders nothing
        self._flying.append((arrival_s, packet))

    def pop_due(self, now_s: float) -> list[bytes]:
        """What has arrived by `now_s`; what flew when the link went down arrives."""
        due = []
        while self._flying and self._flying[0][0] <= now_s:
            due.append(self._flying.popleft()[1])
        self.counters.delivered += len(due)
        self.counters.delivered_bytes += sum(map(len, due))
        return due

    def next_s(self) -> float | None:
        """When the next packet arrives; None while none flies."""
        return self._flying[0][0] if self._flying else None
