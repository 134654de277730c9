"""Bandwidth, round trip and queueing of a directed link from the acks of its chunks. Pure.

A stretch of acks says how fast bytes arrived, by the receiver's clock alone, and how fast they had
been sent, by the sender's. If they arrived more slowly than they were sent and had to queue, while
more waited all the time, the arrival rate is what the link can do now; if not, it can do at least
that. Of a link that never had enough to do only that is known, and it is not paced at all. To find
out whether a link can do more, the pace is raised for some round trips now and then, and lowered
for the next; also as soon as acks tell of a queue that stands, which all else that uses the link
waits behind.

After a pause TCP begins with a few packets and lets one more go for each that is answered: chunks
wait in the sender's kernel and look like a slow link. What came of such a start grows from stretch
to stretch, or is as much as it let go; of a slow link it soon is far less.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum

_STRETCH_S = 0.1  # shorter ones tell more of threads that were late than of the link
_MIN_RTT_KEPT_S = 10.0
_START_MARGIN = 0.3  # of a round trip: what is too much at the start stands as a queue for one
_MARGIN_S = 0.025  # under way beyond a round trip: chunks that are half sent, and late threads
_DRAIN_MARGIN_S = 0.01
_START_STRETCH_S = 0.05  # at the start a rough rate soon is worth more than a good one late
_LEAST_STRETCH_S = 0.02  # one that is cut short because a queue has built up
_LEAST_STRETCH_BYTES = 16_000  # fewer tell how soon the ends looked, nothing of the link
_QUEUED_S = 0.005  # waiting that is more than jitter
_STANDING_S = 0.006  # a queue that all acks see for a while: the pace is above what the link does
_STANDS_FOR_S = 0.02
_SLOWED = 0.98  # less only while a queue drains
_SAMPLES = 6  # the rate is the best of so many: a few that threads were late for lower nothing
_MOST_FALL = 0.8  # of the rate, with one stretch
_LONG_QUEUED_S = 0.025  # waiting that is more than what is sent beyond a round trip
_LEVEL = 1.05  # samples that differ by less are of the same rate
_FULL_KEPT = 4
_GROWN = 1.04
_NEAR = 0.98  # of the rate: a stretch that kept up with so much counts, slowed or not
_PROBED = 1.03
# Of what a starting TCP lets go in a round trip, which is what was answered since its start.
_TCP_SHARE = 0.25
_FALLEN = 1.3  # so much more it did once: then every second probe is a loud one
_ASKED = 0.85  # of the rate: that much was sent at the start, so that it might have grown
_LONGEST_START = 3  # stretches without growth
_LONGEST_QUEUED_START = 2  # and with a queue


class _Phase(Enum):
    """Its gain on the rate, and for how many round trips it lasts."""

    START = (1.5, 1)
    CRUISE = (0.98, 5)
    PROBE = (1.05, 2)
    FAST_PROBE = (1.25, 2)
    LOUD_PROBE = (1.25, 1.5)
    DRAIN = (0.85, 1)

    @property
    def gain(self) -> float:
        return float(self.value[0])

    @property
    def rounds(self) -> float:
        return float(self.value[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arrival:
    sent_s: float
    received_s: float  # of the receiver's clock
    delivered_bytes: int
    has_more: bool


class DeliveryRate:
    """Times in seconds; `bytes_per_s` and `rtt_s` are None before they are known."""

    def __init__(self) -> None:
        self.bytes_per_s: float | None = None
        self.rtt_s: float | None = None  # shortest of late: that of an idle link
        self.queueing_s = 0.0  # how much longer than that the last took
        self.measured_s: float | None = None  # when the rate was last confirmed or changed
        self.is_floor = True  # the link may do more: it was not seen full at that rate
        self._arrivals: deque[_Arrival] = deque()
        self._rtts: deque[tuple[float, float]] = deque()  # when, falling minima of the window
        self._least_queueing_s = float("inf")  # of the present stretch
        self._is_fed = True  # likewise: the link always had more to send
        self._is_untried = False  # it never had: the rate is only what was asked for
        self._standing_since_s: float | None = None
        self._samples: deque[float] = deque(maxlen=_SAMPLES)
        self._full: deque[float] = deque(maxlen=_FULL_KEPT)  # lower ones, of a long queue
        self._phase = _Phase.START
        self._phase_since_s = 0.0
        self._asked_s: float | None = None  # for the pace, which is when something is sent
        self._probes = 0
        self._most = 0.0  # bytes/s it ever settled at
        self._phase_queueing_s = 0.0  # when the phase began
        self._probe = _Phase.START  # the last phase with a raised pace
        self._probed_from = float("inf")  # bytes/s when it began
        self._flat_stretches = 0
        self._restarted_at: float | None = None  # bytes/s at which TCP went on after a pause
        self._restarted_from = 0  # bytes delivered when the pause ended

    def on_ack(
        self,
        *,
        sent_s: float,
        received_s: float,
        delivered_bytes: int,
        chunk_bytes: int,
        has_more: bool,
        now_s: float,
    ) -> None:
        """A chunk (0 bytes: a probe) sent at `sent_s` was answered.

        `has_more`: when it was sent something else waited, so that the link had enough to do.
        """
        if self._arrivals and delivered_bytes < self._arrivals[-1].delivered_bytes:
            self._arrivals.clear()  # the receiver was started anew
        line_s = chunk_bytes / self.bytes_per_s if self.bytes_per_s else 0.0
        self._observe_rtt(max(0.0, now_s - sent_s), line_s, now_s)
        if not chunk_bytes:
            return
        arrival = _Arrival(
            sent_s=sent_s,
            received_s=received_s,
            delivered_bytes=delivered_bytes,
            has_more=has_more,
        )
        if self._arrivals and sent_s - self._arrivals[-1].sent_s > max(_STRETCH_S, self.rtt_s or 0):
            self._arrivals.clear()  # a pause: nothing was wanted of the link
            self._least_queueing_s = float("inf")
            self._restarted_at, self._restarted_from = 0.0, delivered_bytes - chunk_bytes
        self._is_fed = not self._arrivals or (self._is_fed and self._arrivals[-1].has_more)
        self._arrivals.append(arrival)
        self._least_queueing_s = min(self._least_queueing_s, self.queueing_s)
        too_fast = self._is_too_fast(sent_s, now_s)
        stretch_s = arrival.received_s - self._arrivals[0].received_s
        least_s = _START_STRETCH_S if self._phase is _Phase.START else _STRETCH_S
        is_long = stretch_s >= (_LEAST_STRETCH_S if too_fast else max(least_s, self.rtt_s or 0.0))
        if is_long and delivered_bytes - self._arrivals[0].delivered_bytes >= _LEAST_STRETCH_BYTES:
            self._take(self._arrivals[0], arrival, now_s)
            self._arrivals.clear()
            self._arrivals.append(arrival)
            self._least_queueing_s, self._is_fed = float("inf"), True
        if too_fast and self.bytes_per_s is not None:
            self._enter(_Phase.DRAIN, now_s)

    @property
    def has_settled(self) -> bool:
        """Whether the rate is past its start: it grows no more."""
        return self._phase is not _Phase.START

    @property
    def pace_now(self) -> float | None:
        """Bytes/s to send at; None: not known, as fast as the window lets."""
        if self.bytes_per_s is None or self._is_untried:
            return None
        return self.bytes_per_s * self._phase.gain

    def pace(self, now_s: float) -> float | None:
        """The same, asked while prompts wait: only then can be found out what the link does."""
        if self.bytes_per_s is None:
            return None
        if self._asked_s is not None and now_s - self._asked_s > max(_STRETCH_S, self.rtt_s or 0):
            self._phase_since_s += now_s - self._asked_s  # nothing is found out in a pause
        self._asked_s = now_s
        self._move_on(now_s)
        return self.pace_now

    def _is_too_fast(self, sent_s: float, now_s: float) -> bool:
        """Whether a raised pace has made a queue that stands."""
        if self.queueing_s <= _STANDING_S or sent_s < self._phase_since_s:
            self._standing_since_s = None
            return False
        if self._standing_since_s is None:
            self._standing_since_s = now_s
        is_raised = self._phase in (_Phase.PROBE, _Phase.FAST_PROBE, _Phase.LOUD_PROBE)
        return is_raised and now_s - self._standing_since_s >= _STANDS_FOR_S

    @property
    def window_bytes(self) -> float | None:
        """What may be under way so that the link is full and hardly more; None: not known."""
        if self.bytes_per_s is None or self.rtt_s is None:
            return None
        margin_s = _DRAIN_MARGIN_S if self._phase is _Phase.DRAIN else _MARGIN_S
        if self._phase is _Phase.START and self._flat_stretches == 0:
            margin_s = max(margin_s, _START_MARGIN * self.rtt_s)
        return self.bytes_per_s * (self.rtt_s + margin_s)

    def _move_on(self, now_s: float) -> None:
        round_s = max(self.rtt_s or 0.0, _STRETCH_S)
        if self._phase is _Phase.START:
            return  # ended by what is measured
        if now_s - self._phase_since_s >= self._phase.rounds * round_s:
            self._enter(self._phase_after(), now_s)

    def _phase_after(self) -> _Phase:
        if self._phase is _Phase.CRUISE:
            self._probes += 1
            has_fallen = self._most > _FALLEN * (self.bytes_per_s or 0.0)
            return _Phase.LOUD_PROBE if has_fallen and self._probes % 2 == 0 else _Phase.PROBE
        if self._phase is _Phase.DRAIN:
            drains = _QUEUED_S < self.queueing_s < self._phase_queueing_s  # else the way is longer
            return _Phase.DRAIN if drains else _Phase.CRUISE
        return _Phase.DRAIN if self.queueing_s > _QUEUED_S else _Phase.CRUISE

    def _enter(self, phase: _Phase, now_s: float) -> None:
        self._phase, self._phase_since_s = phase, now_s
        self._phase_queueing_s = self.queueing_s
        if phase is _Phase.DRAIN:
            self._probed_from = float("inf")  # nothing more was found, or all there is
        elif phase.gain > 1:
            self._probe, self._probed_from = phase, self.bytes_per_s or 0.0
        self._flat_stretches = 0

    def _take(self, first: _Arrival, last: _Arrival, now_s: float) -> None:
        arrived_s = last.received_s - first.received_s
        sent_s = last.sent_s - first.sent_s
        # What a lost packet held up comes all at once, but was not sent faster for it.
        sample = (last.delivered_bytes - first.delivered_bytes) / max(arrived_s, sent_s)
        before = self.bytes_per_s
        self._is_untried = not self._is_fed and (before is None or self._is_untried)
        held_up = arrived_s > _SLOWED * sent_s
        slowed = held_up and self._is_fed and self._least_queueing_s > _QUEUED_S
        restarts = held_up and self._restarts(sample, last.delivered_bytes)
        if not restarts:
            self._restarted_at = None
        self.measured_s = now_s
        if slowed and not restarts:
            self.is_floor = False
        elif before is None or sample > _GROWN * before:
            self.is_floor = True
        if self._phase is _Phase.START and before is not None:
            asked = (last.delivered_bytes - first.delivered_bytes) >= _ASKED * before * sent_s
            if sample > before or (asked and not restarts):
                self._grow(sample, before, slowed, now_s)
        elif before is None or sample >= _NEAR * before:
            self._full.clear()
            self._settle_by(sample, before)
        elif slowed and not restarts:
            if self._least_queueing_s > _LONG_QUEUED_S and self._is_level(sample):
                self._samples.clear()
                sample, before = max(self._full), None
            self._settle_by(sample, before)
        if self.has_settled:
            self._most = max(self._most, self.bytes_per_s or 0.0)
            self._go_on(now_s)

    def _go_on(self, now_s: float) -> None:
        """There is more than before the last probe, of which acks may tell when it is over: on."""
        has_grown = (self.bytes_per_s or 0.0) > _PROBED * self._probed_from
        if has_grown and self._phase is not _Phase.DRAIN and self.queueing_s <= _QUEUED_S:
            is_first = self._probe is _Phase.PROBE
            self._enter(_Phase.FAST_PROBE if is_first else _Phase.START, now_s)

    def _settle_by(self, sample: float, before: float | None) -> None:
        self._samples.append(sample)
        self.bytes_per_s = max(*self._samples, _MOST_FALL * (before or 0.0))

    def _is_level(self, sample: float) -> bool:
        """Whether a link with a long queue did as much before and no more, as no late thread and
        no TCP that starts make it do: whatever it did earlier, it does that now."""
        has_done = any(other >= sample / _LEVEL for other in self._full)
        self._full.append(sample)
        return has_done and max(self._full) <= _LEVEL * sample

    def _restarts(self, sample: float, delivered_bytes: int) -> bool:
        """Whether TCP is still on its way back to the rate that it had before a pause."""
        if self._restarted_at is None:
            return False
        answered = delivered_bytes - self._restarted_from
        grows = sample > _GROWN * self._restarted_at
        self._restarted_at = sample
        return grows or sample * (self.rtt_s or 0.0) > _TCP_SHARE * answered

    def _grow(self, sample: float, before: float, slowed: bool, now_s: float) -> None:
        """At the start the rate is the last that was more than the one before; once none is, what
        came since, of a link that had enough to do."""
        if sample > _GROWN * before:
            self._flat_stretches = 0
            self._samples.clear()
        else:
            self._flat_stretches += 1
        self._samples.append(sample)
        self.bytes_per_s = max(self._samples)
        if self._flat_stretches >= (_LONGEST_QUEUED_START if slowed else _LONGEST_START):
            if slowed:
                self._samples.popleft()
                self.bytes_per_s = max(self._samples)
            self._enter(_Phase.DRAIN, now_s)

    def _observe_rtt(self, rtt_s: float, line_s: float, now_s: float) -> None:
        while self._rtts and self._rtts[-1][1] >= rtt_s:
            self._rtts.pop()
        self._rtts.append((now_s, rtt_s))
        while self._rtts[0][0] < now_s - _MIN_RTT_KEPT_S:
            self._rtts.popleft()
        self.rtt_s = self._rtts[0][1]
        self.queueing_s = max(0.0, rtt_s - line_s - self.rtt_s)
