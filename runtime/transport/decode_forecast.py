"""When this stage will next have a decode to send: how long the link is free for prompts.

MoLink §4.2, Table 1, with the three cases of its T_a told from what runs here:

    a decode step has just begun, or runs since t_s:  T_a = t_s + T_d(n) - t_c      (cases 1 and 2)
    none runs:                                        T_a = t_p + T_o + T_m - t_c   (case 3)

T_d(n) is a profile's, or what was first measured, kept current by every step. T_o + T_m, the time
from a batch's departure to the next of the same requests, is measured here as a whole: a stage of
many pipelines sees none of them from end to end, and what it measures stays true when links change.
"""

import threading
from collections import deque
from collections.abc import Callable

_WEIGHT = 0.2  # of one observation in the moving averages
_DEPARTURES_KEPT = 64


class DecodeForecast:
    """`profiled_s` gives T_d of so many decode tokens, if a profile is known. Times in seconds of
    one monotonic clock. The thread that runs steps may tell it while another asks."""

    def __init__(self, profiled_s: Callable[[int], float] | None = None) -> None:
        self._lock = threading.Lock()
        self._profiled_s = profiled_s or (lambda _: 1.0)
        self._is_profiled = profiled_s is not None
        self._ratio: dict[int, float] = {}  # power of two of tokens -> measured / profiled
        self._running: tuple[float, int] | None = None  # since when, tokens
        self._cycle_s: float | None = None
        self._departures: deque[float] = deque(maxlen=_DEPARTURES_KEPT)

    def step_began(self, *, tokens: int, now_s: float) -> None:
        """A step with so many decode tokens runs now; 0: one of prompts only."""
        with self._lock:
            self._running = (now_s, tokens) if tokens else None

    def step_ended(self, *, now_s: float, cycle_s: float | None) -> None:
        """It is through. `cycle_s`: how long ago its requests had left here before."""
        with self._lock:
            if self._running is None:
                return
            since_s, tokens = self._running
            self._running = None
            self._observe(tokens, now_s - since_s)
            self._departures.append(now_s)
            if cycle_s is not None:
                self._cycle_s = _averaged(self._cycle_s, cycle_s)

    def step_failed(self) -> None:
        """It came to nothing: no decode leaves."""
        with self._lock:
            self._running = None

    def due_s(self, now_s: float) -> float | None:
        """When the next decode will leave; None if none is expected, or nobody knows when."""
        with self._lock:
            if self._running is not None:
                since_s, tokens = self._running
                step_s = self._step_s(tokens)
                return None if step_s is None else max(now_s, since_s + step_s)
            if self._cycle_s is None:
                return None
            while self._departures and self._departures[0] + self._cycle_s <= now_s:
                self._departures.popleft()  # did not come again when it should have
            return self._departures[0] + self._cycle_s if self._departures else None

    def _step_s(self, tokens: int) -> float | None:
        """T_d of so many tokens; None while nothing is known of it."""
        if not self._ratio:
            return self._profiled_s(tokens) if self._is_profiled else None
        bucket = _bucket(tokens)
        nearest = min(self._ratio, key=lambda known: (abs(known - bucket), known))
        return self._profiled_s(tokens) * self._ratio[nearest]

    def _observe(self, tokens: int, step_s: float) -> None:
        bucket = _bucket(tokens)
        ratio = step_s / self._profiled_s(tokens)
        self._ratio[bucket] = _averaged(self._ratio.get(bucket), ratio)


def _bucket(tokens: int) -> int:
    return tokens.bit_length()


def _averaged(average: float | None, value: float) -> float:
    return value if average is None else average + _WEIGHT * (value - average)
