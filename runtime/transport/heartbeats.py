"""Whether a peer is there, from the heartbeats it answers: what is known of one. Pure.

Like TCP's retransmission timeout and phi-accrual detectors, the patience adapts: mean and deviation
of the round trips so far, within bounds; one whose round trips are beyond them is only slow, and
gets more once that is known. All times in seconds of one monotonic clock.
"""

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from runtime.protocol.link_frames import Beat, Echo

BEAT_INTERVAL_S = 0.2
LEAST_PATIENCE_S = 0.5
MOST_PATIENCE_S = 1.6  # with the interval, below 2 s
_DEVIATIONS = 6.0
_TIMES_MEAN = 2.0
_RISES, _FALLS = 1 / 4, 1 / 64  # of the deviation, with each answer
_STALLS_AGAIN_S = 10.0  # an answer that is far too late says something if one was so lately
_UNANSWERED_KEPT = 512

LEAST_TURN_S = 3.0  # turns that last less are no sign of anything
MOST_TURN_S = 60.0
FIRST_TURN_S = 10.0  # while nothing is known of its turns: the first may have to warm up
_TIMES_LONGEST = 4.0


class Loss(StrEnum):
    """How a peer was found to be gone."""

    ENDED = "its process has ended"
    SILENT = "it answers no heartbeats"
    HANGS = "its process hangs"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerEvent:
    """News of a peer: lost, and how; or there (again), `loss` None.

    `silent_s`: since when nothing good had been heard of it, 0 if it had never been heard.
    """

    peer: str
    loss: Loss | None
    silent_s: float


class Heartbeats:
    """Owns the heartbeats of one peer; `HeartbeatMonitor` calls it.

    Of one peer. `loss`: how it is lost; None as long as it is there, or was never heard.
    """

    def __init__(self) -> None:
        self.loss: Loss | None = None
        self.heard_s: float | None = None  # the last good echo
        self._sequence = 0
        self._unanswered: deque[tuple[int, float]] = deque(maxlen=_UNANSWERED_KEPT)
        self._mean_s: float | None = None
        self._deviation_s = 0.0
        self._stalled_s: float | None = None  # when an answer came far too late

    def beat(self, *, now_s: float) -> Beat:
        """The next one, which goes out now, or cannot."""
        self._sequence += 1
        self._unanswered.append((self._sequence, now_s))
        return Beat(sequence=self._sequence)

    def hear(self, echo: Echo, *, now_s: float) -> bool:
        """Take an echo; True if this is news: heard for the first time, or back."""
        sent_s = None
        while self._unanswered and self._unanswered[0][0] <= echo.sequence:
            sequence, at_s = self._unanswered.popleft()
            if sequence == echo.sequence:
                sent_s = at_s
        if sent_s is None:
            return False  # of another life of ours, or too old to tell
        if _hangs(echo):
            self._unanswered.clear()  # it is not silent
            if self.heard_s is not None and self.loss is None:
                self.loss = Loss.HANGS
            return False
        is_news = self.heard_s is None or self.loss is not None
        if self.heard_s is not None and self.loss is not Loss.ENDED:
            self._sample(now_s - sent_s, now_s=now_s)
        if is_news:
            self._unanswered.clear()  # beats that waited, too, before a connection stood
        self.heard_s, self.loss = now_s, None
        return is_news

    def end(self) -> bool:
        """Its process was found to have ended; True if this is news."""
        if self.heard_s is None or self.loss is Loss.ENDED:
            return False
        self.loss = Loss.ENDED
        self._mean_s, self._deviation_s, self._stalled_s = None, 0.0, None
        return True

    def judge(self, *, now_s: float) -> None:
        """Take it for lost if it leaves a beat unanswered for too long."""
        if self.heard_s is None or self.loss is not None or not self._unanswered:
            return
        if now_s - self._unanswered[0][1] > self.patience_s:
            self.loss = Loss.SILENT

    def skip(self, seconds: float) -> None:
        """We ourselves did nothing for so long: no peer is to blame for it."""
        moved = [(sequence, at_s + seconds) for sequence, at_s in self._unanswered]
        self._unanswered = deque(moved, maxlen=_UNANSWERED_KEPT)

    def silent_s(self, *, now_s: float) -> float:
        """Since the last good echo; 0 before the first."""
        return 0.0 if self.heard_s is None else now_s - self.heard_s

    @property
    def patience_s(self) -> float:
        """How long an answer may take now."""
        if self._mean_s is None:
            return MOST_PATIENCE_S
        expected_s = self._mean_s + _DEVIATIONS * self._deviation_s
        most_s = max(MOST_PATIENCE_S, _TIMES_MEAN * self._mean_s)
        return min(most_s, max(LEAST_PATIENCE_S, expected_s))

    def _sample(self, round_trip_s: float, *, now_s: float) -> None:
        """Weights of RFC 6298, but what was late twice may be late again for half a minute: on a
        machine with too much to do, a thread that waits for a core does so now and then. What was
        so once was cut off, or frozen, and should that happen again it is to be found as soon."""
        if round_trip_s > LEAST_PATIENCE_S:
            is_alone = self._stalled_s is None or now_s - self._stalled_s > _STALLS_AGAIN_S
            self._stalled_s = now_s
            if is_alone:
                return
        if self._mean_s is None:
            self._mean_s, self._deviation_s = round_trip_s, round_trip_s / 2
            return
        error_s = round_trip_s - self._mean_s
        more_s = abs(error_s) - self._deviation_s
        self._deviation_s += more_s * (_RISES if more_s > 0 else _FALLS)
        self._mean_s += error_s / 8


def _hangs(echo: Echo) -> bool:
    """Whether its process takes far longer for a turn than it ever did."""
    turn_s, longest_s = echo.turn_us * 1e-6, echo.longest_turn_us * 1e-6
    expected_s = _TIMES_LONGEST * longest_s if longest_s else FIRST_TURN_S
    return turn_s > min(MOST_TURN_S, max(LEAST_TURN_S, expected_s))
