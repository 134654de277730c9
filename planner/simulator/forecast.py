"""Results of a simulation: rates, latencies, and utilisation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.simulator.engine import LEAST_EXPONENT, NUM_BUCKETS, SUB_BUCKETS, Counts, bucket_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Percentiles in seconds, right to 1 %; all 0 where nothing was counted."""

    count: int
    p50_s: float
    p95_s: float
    p99_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeForecast:
    """One node in the window. `utilisation` is the share of time in steps, 0 to 1.

    `batch_decodes` is the mean of decodes over steps that had any. `convoy` is the batch over the
    requests whose pipeline visits the node, both as a decode sees them: 1 when all step together.
    KV is that of the pages held, as a share of all; `queued` counts items that wait for a step.
    """

    utilisation: float
    batch_decodes: float
    convoy: float
    resident_requests: float
    kv_mean: float
    kv_peak: float
    queued: float
    prompt_tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkForecast:
    """One directed link in the window; `queued` and `queued_peak` count messages that wait."""

    source: str
    target: str
    utilisation: float
    bytes_per_s: float
    queued: float
    queued_peak: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Performance of a plan, measured in a window of `window_s` after the warm-up.

    `decode_tokens_per_s` counts every token that reaches the coordinator, `prompt_tokens_per_s` the
    prompts whose first token does. `requests_preempted` counts how often requests lost their KV
    pages, or found none, and had to restart from the tokens known; `requests_failed` those that
    could not, or had to too often. TTFT and end-to-end times begin at the arrival and include
    `queue`. TPOT and end-to-end times are those of requests that finished in the window.
    `convoy` is the nodes' mean, weighted by decodes.
    """

    decode_tokens_per_s: float
    prompt_tokens_per_s: float
    ttft: Spread
    itl: Spread
    tpot: Spread
    e2e: Spread
    queue: Spread
    requests_finished: int
    requests_running: float
    utilisation_mean: float
    utilisation_max: float
    batch_decodes: float
    convoy: float
    kv_peak: float
    nodes: Mapping[str, NodeForecast]
    links: tuple[LinkForecast, ...]
    window_s: float
    simulated_s: float
    events: int
    requests_preempted: int = 0
    requests_failed: int = 0


class Tally:
    """Counts durations in the engine's buckets: little memory, however many there are."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def add(self, seconds: float) -> None:
        bucket = bucket_of(seconds)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1

    def spread(self) -> Spread:
        counts = np.zeros(NUM_BUCKETS, dtype=np.int64)
        for bucket, count in self._counts.items():
            counts[bucket] = count
        return spread_of(counts)


def spread_of(counts: Counts) -> Spread:
    """Percentiles of counted durations, linear within a bucket."""
    total = int(counts.sum())
    if not total:
        return Spread(count=0, p50_s=0.0, p95_s=0.0, p99_s=0.0)
    below = np.cumsum(counts)
    p50, p95, p99 = (_quantile(counts, below, share * total) for share in (0.5, 0.95, 0.99))
    return Spread(count=total, p50_s=p50, p95_s=p95, p99_s=p99)


def _quantile(counts: Counts, below: Sequence[int] | Counts, rank: float) -> float:
    bucket = int(np.searchsorted(below, rank))
    if bucket == 0:
        return 0.0  # nothing, or less than a microsecond
    low, high = _lower_end(bucket), _lower_end(bucket + 1)
    part = (rank - (below[bucket] - counts[bucket])) / counts[bucket]
    return low + float(part) * (high - low)


def _lower_end(bucket: int) -> float:
    exponent, sub = divmod(bucket, SUB_BUCKETS)
    return float(np.ldexp(0.5 + sub / (2 * SUB_BUCKETS), exponent + LEAST_EXPONENT))
