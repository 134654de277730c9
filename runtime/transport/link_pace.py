"""What a link delivers, and the pace that keeps its queue short, from looks at TCP. Pure.

TCP knows the bytes that were delivered and the round trip. What a round trip has above the shortest
of the last seconds is the link's queue. The pace is the rate last seen, more while the queue is
below a target and less while it is above, so that the queue settles at the target: the link is then
full, its rate is known, and decodes wait no longer than that. While there is no queue the pace
grows, at first by half of what arrived a round trip before. A queue that does not fall although the
pace is low belongs to others, or the route has become longer: it counts as part of the round trip.
"""

from dataclasses import dataclass

_TARGET_S = 0.004
_TARGET_PACKETS = 3  # on slow links a few packets are longer than that
_TARGET_ROUND_TRIPS = 1 / 32  # on long ones the round trip is not known better
_NEAR_TARGET = 0.75  # of it, throughout a round: the link was full
_NEAR_WEIGHT = 0.25  # of such a round's rate in the average
_BEYOND_TARGET = 2  # a longer queue: the rate was wrong, or is another now
_LONG_QUEUE_S = 0.025  # beyond, one round says what the link does
_MOST_FALL = 0.8  # of the rate, with one round of a shorter queue
_LEAST_PACE = 0.75  # of the rate, to drain a queue
_HORIZON_ROUND_TRIPS = 3  # in which a queue is to be at the target; fewer swing
_LEAST_ROUND_S = 0.1
_LEAST_START_ROUND_S = 0.02
_LEAST_ROUND_PACKETS = 12  # fewer say too little of a rate
_LEAST_START_PACKETS = 4  # that grows at once
_START = 0.5  # of the rate, that the pace is above it
_LEAST_GROWTH, _MOST_GROWTH = 0.02, 0.4  # the same later, doubled by each round that found more
_GROWN = 1.01
_GIVEN = 0.97  # of the pace: the link did what was asked of it
_FLOOR_AGAIN = 1.04  # of the rate, without a queue: the link may do more still
_FLAT_START_ROUNDS = 6  # three round trips: something else than the link bounds what is sent
_RTT_KEPT_S = 10.0
_NOT_DRAINED = 1 / 3  # of the queue that a low pace should have drained: it is not ours


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpLook:
    """What TCP says of a connection now: bytes that arrived, what waits in it, its round trip.
    `is_held`: so much is under way that its own window lets no more go."""

    delivered_bytes: int
    unsent_bytes: int
    rtt_s: float
    packet_bytes: int
    is_held: bool


@dataclass(slots=True, kw_only=True)
class _Round:
    since_s: float
    delivered_bytes: int
    least_rtt_s: float
    is_fed: bool = True  # there always was more to send
    is_held: bool = False  # at some moment, as after a pause
    ended_s: float = 0.0
    rate: float = 0.0  # once it has ended

    @property
    def took_s(self) -> float:
        return self.ended_s - self.since_s


@dataclass(slots=True, kw_only=True)
class _Standing:
    """A queue beyond the target: its length and the rate when it was first seen, and how much of
    it should have drained since."""

    queue_s: float
    rate: float
    pace: float
    drained_s: float = 0.0


class LinkPace:
    """Owns the rate and pace of one link; its scheduler calls it.

    Of a directed link. Times in seconds; `bytes_per_s` and `rtt_s` are None before they are
    known, and `pace`, of all that the link carries, while it need not be bounded.
    """

    def __init__(self) -> None:
        self.bytes_per_s: float | None = None
        self.rtt_s: float | None = None  # the shortest of the last seconds: that of an idle link
        self.queueing_s = 0.0  # how much longer than that it is now
        self.measured_s: float | None = None  # when the rate was last confirmed or changed
        self.is_floor = True  # the link may do more: it was not seen full at that rate
        self.pace: float | None = None
        self._rtt_seen_s = 0.0  # when it was as short as that
        self._refreshes_until_s: float | None = None  # a low pace shows the shortest round trip
        self._busy: tuple[float, int] | None = None  # since when, bytes delivered then
        self._delivered_bytes = 0
        self._round: _Round | None = None
        self._growth = _START
        self._was_fed = False  # so that the link might have shown what it does
        self._flat_rounds = 0
        self._drains = False  # what the start left, at the least pace
        self._standing: _Standing | None = None

    @property
    def has_settled(self) -> bool:
        """Whether the rate is past its start."""
        return self._growth < _START and not (self.is_floor and self._flat_rounds == 0)

    def rest(self, look: TcpLook, *, now_s: float) -> None:
        """Nothing is wanted of the link now; what it did before it does at least."""
        if self._busy is not None:
            since_s, delivered_bytes = self._busy
            rate = (look.delivered_bytes - delivered_bytes) / max(now_s - since_s, _TARGET_S)
            if rate > (self.bytes_per_s or 0.0):
                self.bytes_per_s, self.measured_s = rate, now_s
        self._busy = self._round = self._refreshes_until_s = self._standing = None
        self._drains = False
        self._see_rtt(look, now_s)
        self._adjust(0.0, look.packet_bytes)

    def observe(self, look: TcpLook, *, other_bytes_per_s: float, now_s: float) -> None:
        """The link has enough to do, other things beside what is looked at."""
        if self._busy is None or look.delivered_bytes < self._delivered_bytes:
            self._busy, self._round = (now_s, look.delivered_bytes), None  # or another connection
        self._delivered_bytes = look.delivered_bytes
        since_s, delivered_bytes = self._busy
        if look.delivered_bytes <= delivered_bytes or now_s < since_s + (self.rtt_s or 0.0):
            return  # what TCP says is of before
        rtt_s = self._see_rtt(look, now_s)
        if self._round is None:
            self._begin_round(look, now_s)
            return
        now = self._round
        now.least_rtt_s = min(now.least_rtt_s, look.rtt_s)
        now.is_fed = now.is_fed and look.unsent_bytes > 0
        now.is_held = now.is_held or look.is_held
        target_s = self._target_s(look.packet_bytes)
        starts, is_over = self._growth >= _START, self.queueing_s > target_s
        long_s = max(rtt_s / 2, _LEAST_START_ROUND_S) if starts else max(rtt_s, _LEAST_ROUND_S)
        if starts and is_over and self._was_fed:
            long_s = _LEAST_START_ROUND_S
        took_s, was_fed = now_s - now.since_s, self._was_fed
        arrived = look.delivered_bytes - now.delivered_bytes
        packets = _LEAST_START_PACKETS if starts and not is_over else _LEAST_ROUND_PACKETS
        if took_s >= long_s and arrived >= packets * look.packet_bytes:
            now.ended_s, now.rate = now_s, arrived / took_s + other_bytes_per_s
            self._end_round(now, target_s)
            self._begin_round(look, now_s)
        if is_over and was_fed:
            self._growth, self._drains = 0.0, self._drains or starts
        self._drains = self._drains and is_over
        self._adjust(self.queueing_s, look.packet_bytes)

    def _begin_round(self, look: TcpLook, now_s: float) -> None:
        self._round = _Round(
            since_s=now_s, delivered_bytes=look.delivered_bytes, least_rtt_s=look.rtt_s
        )

    def _end_round(self, ended: _Round, target_s: float) -> None:
        rate, before, starts = ended.rate, self.bytes_per_s, self._growth >= _START
        if not ended.is_fed:
            self.bytes_per_s = max(before or 0.0, rate)
            return
        self._was_fed = True
        queue_s = ended.least_rtt_s - (self.rtt_s or 0.0)
        self.measured_s = ended.ended_s
        if queue_s > _NEAR_TARGET * target_s and before is not None:
            self._growth, self.is_floor = 0.0, False
            self._end_full_round(ended, before, target_s)
            return
        self._standing = None
        if before is None or rate > _FLOOR_AGAIN * before:
            self.is_floor = True
        self.bytes_per_s = max(rate, before or 0.0)
        has_grown = before is None or rate > _GROWN * before
        if starts:
            self._flat_rounds = 0 if has_grown else self._flat_rounds + 1
            if self._flat_rounds >= _FLAT_START_ROUNDS:
                self._growth = 0.0
        elif has_grown or (queue_s < target_s / 2 and rate > _GIVEN * (self.pace or 0.0)):
            self._growth = min(_MOST_GROWTH, max(_LEAST_GROWTH, 2 * self._growth))

    def _end_full_round(self, ended: _Round, before: float, target_s: float) -> None:
        rate, pace = ended.rate, self.pace or ended.rate
        queue_s = ended.least_rtt_s - (self.rtt_s or 0.0)
        if queue_s <= _BEYOND_TARGET * target_s:
            self._standing = None
            if rate > before or not ended.is_held:
                self.bytes_per_s = before + _NEAR_WEIGHT * (rate - before)
            return
        self.bytes_per_s = rate if queue_s > _LONG_QUEUE_S else max(rate, _MOST_FALL * before)
        standing = self._standing
        if standing is None or queue_s > standing.queue_s + target_s:
            self._standing = _Standing(queue_s=queue_s, rate=self.bytes_per_s, pace=pace)
            return
        # what is sent now arrives a round trip later
        standing.drained_s += max(0.0, 1 - max(pace, standing.pace) / standing.rate) * ended.took_s
        standing.pace = pace
        if (
            standing.drained_s > _BEYOND_TARGET * target_s
            and standing.queue_s - queue_s < _NOT_DRAINED * standing.drained_s
        ):
            self.rtt_s, self._rtt_seen_s, self.queueing_s = ended.least_rtt_s, ended.ended_s, 0.0
            self.bytes_per_s, self._standing = standing.rate, None

    def _see_rtt(self, look: TcpLook, now_s: float) -> float:
        """The shortest, which is looked for again now and then while the link is full."""
        is_old = now_s - self._rtt_seen_s > _RTT_KEPT_S
        if self._refreshes_until_s is not None and now_s >= self._refreshes_until_s:
            self._refreshes_until_s, self.rtt_s = None, None
        if self.rtt_s is None or look.rtt_s <= self.rtt_s or (is_old and self._round is None):
            self.rtt_s, self._rtt_seen_s = look.rtt_s, now_s
        elif look.rtt_s <= self.rtt_s + self._target_s(look.packet_bytes) / 2:
            self._rtt_seen_s = now_s
        elif is_old and self._refreshes_until_s is None:
            drained_s = (look.rtt_s - self.rtt_s) / (1 - _LEAST_PACE)
            self._refreshes_until_s = now_s + self.rtt_s + drained_s + _LEAST_ROUND_S
        self.queueing_s = look.rtt_s - self.rtt_s
        return self.rtt_s

    def _target_s(self, packet_bytes: int) -> float:
        target_s = max(_TARGET_S, _TARGET_ROUND_TRIPS * (self.rtt_s or 0.0))
        if self.bytes_per_s is not None and self._was_fed:
            target_s = max(target_s, _TARGET_PACKETS * packet_bytes / self.bytes_per_s)
        return target_s

    def _adjust(self, queue_s: float, packet_bytes: int) -> None:
        if self.bytes_per_s is None or not self._was_fed:
            return
        horizon_s = max(_LEAST_ROUND_S, _HORIZON_ROUND_TRIPS * (self.rtt_s or 0.0))
        share = 1 + self._growth + (self._target_s(packet_bytes) - queue_s) / horizon_s
        if self._drains or self._refreshes_until_s is not None:
            share = _LEAST_PACE
        self.pace = self.bytes_per_s * max(_LEAST_PACE, share)
