"""What the coordinator measures: totals since start, and percentiles of a sliding window.

TTFT = arrival to first token handed to the answer, queueing included. ITL = the gaps between a
request's tokens. TPOT = (end-to-end - TTFT) / (output tokens - 1), one number per request. Queue =
arrival to the moment a pipeline was chosen. All in seconds.
"""

import bisect
import itertools
import math
from collections import Counter, deque
from collections.abc import Callable, Sequence

from planner.domain.cluster import SINK, SOURCE
from runtime.api.spending import Spending
from runtime.coordinator.request_life import RequestLife
from runtime.protocol.control import LATENCY_BOUNDS_S

LENGTH_BOUNDS = tuple(2**power for power in range(18))
REJECTED = "queue_full"


class Window:
    """Values of the last `window_s` seconds."""

    def __init__(self, *, window_s: float, clock: Callable[[], float]) -> None:
        self._window_s = window_s
        self._clock = clock
        self._values: deque[tuple[float, float]] = deque()

    def add(self, value: float) -> None:
        now = self._clock()
        self._values.append((now, value))
        self._forget(now)

    def sum_per_s(self) -> float:
        self._forget()
        return sum(value for _, value in self._values) / self._window_s

    def count_per_s(self) -> float:
        self._forget()
        return len(self._values) / self._window_s

    def percentile(self, fraction: float) -> float | None:
        """Nearest rank; None when nothing happened in the window."""
        self._forget()
        if not self._values:
            return None
        ordered = sorted(value for _, value in self._values)
        return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]

    def _forget(self, now: float | None = None) -> None:
        oldest = (self._clock() if now is None else now) - self._window_s
        while self._values and self._values[0][0] < oldest:
            self._values.popleft()


class Histogram:
    """How many values since the start were at most each of `bounds`, and above them."""

    def __init__(self, bounds: Sequence[float] = LATENCY_BOUNDS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value


class Latency:
    """One kind of latency: lately, and counted since the start."""

    def __init__(self, *, window_s: float, clock: Callable[[], float]) -> None:
        self.window = Window(window_s=window_s, clock=clock)
        self.histogram = Histogram()

    def add(self, value_s: float) -> None:
        self.window.add(value_s)
        self.histogram.add(value_s)

    def percentile(self, fraction: float) -> float | None:
        """Nearest rank over the window; None when nothing happened in it."""
        return self.window.percentile(fraction)


class RequestStats:
    """Owns counters and windows; dispatcher and ledger report to it, the reporter reads it.

    `spending` is counted beside, by the key that asked.
    """

    def __init__(self, *, window_s: float, clock: Callable[[], float]) -> None:
        self.window_s = window_s
        self.requests_total = 0
        self.requests_failed_total = 0
        self.requests_rejected_total = 0
        self.prompt_tokens_total = 0
        self.output_tokens_total = 0
        self._tokens_by_way: Counter[tuple[str, ...]] = Counter()  # by the nodes passed
        self.prompt_tokens = Window(window_s=window_s, clock=clock)
        self.output_tokens = Window(window_s=window_s, clock=clock)
        self.queue_s = Window(window_s=window_s, clock=clock)
        self.ttft_s = Latency(window_s=window_s, clock=clock)
        self.itl_s = Latency(window_s=window_s, clock=clock)
        self.tpot_s = Latency(window_s=window_s, clock=clock)
        self.e2e_s = Latency(window_s=window_s, clock=clock)
        self.ended = Window(window_s=window_s, clock=clock)
        self.outcomes: Counter[str] = Counter()
        self.queued_s = Histogram()
        self.prefill_s = Histogram()
        self.decode_s = Histogram()
        self.prompt_lengths = Histogram(LENGTH_BOUNDS)
        self.output_lengths = Histogram(LENGTH_BOUNDS)
        self.spending = Spending()

    def arrived(self) -> None:
        self.requests_total += 1

    def rejected(self) -> None:
        """Turned away on arrival: queue full."""
        self.requests_rejected_total += 1
        self.outcomes[REJECTED] += 1

    def came_to(self, outcome: str) -> None:
        """A request is over, so: stop or length, cancelled, or the code of an error."""
        self.outcomes[outcome] += 1

    def failed(self) -> None:
        """Accepted, but ended by an error of ours."""
        self.requests_failed_total += 1

    def routed(self, life: RequestLife) -> None:
        """A prompt was sent along the request's pipeline."""
        self.queue_s.add(life.queue_s)
        self._pass(life, life.prompt_tokens or 0)

    def token(self, life: RequestLife, *, now_s: float) -> None:
        """The next output token came; with the first the prompt is read."""
        if life.token_times:
            self.itl_s.add(now_s - life.progressed_at)
            self._read(life, output=1)
        else:
            self.ttft_s.add(now_s - life.arrived_at)
            self._read(life, prompt=life.prompt_tokens or 0, output=1)
        self._pass(life, 1)
        life.note_token(now=now_s)

    def read_late(self, life: RequestLife) -> None:
        """How long the prompt was, and tokens not seen coming, as an instance says at the end."""
        prompt, output = life.prompt_tokens or 0, life.unseen_tokens
        self._read(life, prompt=prompt, output=output)
        self._pass(life, prompt + output)

    def finished(self, life: RequestLife, *, now_s: float) -> None:
        """It ended well: each of its parts counts once, unless its tokens were not seen coming.

        With one token it has no TPOT.
        """
        e2e_s, ttft_s, tokens = now_s - life.arrived_at, life.ttft_s, len(life.token_times)
        self.ended.add(1)
        self.e2e_s.add(e2e_s)
        if ttft_s is None:
            return
        if tokens > 1:
            self.tpot_s.add((e2e_s - ttft_s) / (tokens - 1))
        queue_s = life.attempts[0].routed_s - life.arrived_at
        self.queued_s.add(queue_s)
        self.prefill_s.add(max(0.0, ttft_s - queue_s))
        self.decode_s.add(e2e_s - ttft_s)
        if life.prompt_tokens is not None:
            self.prompt_lengths.add(life.prompt_tokens)
        self.output_lengths.add(life.output_tokens)

    @property
    def node_tokens_total(self) -> Counter[str]:
        """Tokens that passed each node since the start."""
        total: Counter[str] = Counter()
        for nodes, tokens in self._tokens_by_way.items():
            for node in nodes:
                total[node] += tokens
        return total

    @property
    def edge_tokens_total(self) -> Counter[str]:
        """Tokens that passed each edge since the start, by "from->to"."""
        total: Counter[str] = Counter()
        for nodes, tokens in self._tokens_by_way.items():
            for source, target in itertools.pairwise([SOURCE, *nodes, SINK]):
                total[f"{source}->{target}"] += tokens
        return total

    def latency_counts(self) -> dict[str, tuple[int, ...]]:
        """By kind of latency: how many were at most each bound since the start."""
        kinds = {"ttft": self.ttft_s, "itl": self.itl_s, "tpot": self.tpot_s, "e2e": self.e2e_s}
        return {name: tuple(latency.histogram.counts) for name, latency in kinds.items()}

    def retry_after_s(self, *, waiting: int) -> int:
        """When one more request should find a place, from the rate at which requests end."""
        rate = self.ended.count_per_s()
        if rate == 0:
            return 5
        return min(60, max(1, math.ceil((waiting + 1) / rate)))

    def _read(self, life: RequestLife, *, prompt: int = 0, output: int = 0) -> None:
        """Count tokens of the prompt and of the answer, also for the key that asked."""
        if prompt:
            self.prompt_tokens_total += prompt
            self.prompt_tokens.add(prompt)
        if output:
            self.output_tokens_total += output
            self.output_tokens.add(output)
        self.spending.given(life.origin.owner, prompt_tokens=prompt, output_tokens=output)

    def _pass(self, life: RequestLife, tokens: int) -> None:
        """Count tokens for the nodes and edges of the request's pipeline."""
        if life.attempts:
            self._tokens_by_way[life.attempts[-1].nodes] += tokens
