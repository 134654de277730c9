"""Arrival times of requests: Poisson, bursts, or a trace's counts. In seconds from 0."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from planner.domain.limits import POSITIVE, Range, check
from planner.workload.request import InvalidWorkload, Lengths, Request
from planner.workload.rows import whole_rows

TRACE_BIN_S = 3.0
COUNT_COLUMN = "arrivals"


def poisson(*, rate_per_s: float, seed: int) -> Iterator[float]:
    """Endless arrivals of that mean rate, independent of each other."""
    check("rate_per_s", rate_per_s, POSITIVE, error=InvalidWorkload)
    generator = random.Random(seed)  # noqa: S311 - a workload, no secret
    now = 0.0
    while True:
        now += generator.expovariate(rate_per_s)
        yield now


def bursts(*, rate_per_s: float, size: int, seed: int) -> Iterator[float]:
    """Endless arrivals of that mean rate, `size` at once; the bursts come as a Poisson process."""
    check("size", size, Range(1), error=InvalidWorkload)
    for time in poisson(rate_per_s=rate_per_s / size, seed=seed):
        yield from [time] * size


def counts_from_csv(path: Path) -> tuple[int, ...]:
    """The column `arrivals` of a trace, one row for every 3 s. Errors name the row."""
    counts = tuple(count for _, (count,) in whole_rows(path, COUNT_COLUMN, minimum=0))
    if not any(counts):
        raise InvalidWorkload(f"{path} has no arrivals; give at least one")
    return counts


def like_counts(counts: Sequence[int], *, rate_per_s: float, seed: int) -> Iterator[float]:
    """Endless arrivals whose rate follows a trace's, scaled to a mean rate.

    In a bin with a share s of the trace's arrivals they come as a Poisson process of rate
    s x number of bins x `rate_per_s`. After the last bin the trace begins again.
    """
    check("rate_per_s", rate_per_s, POSITIVE, error=InvalidWorkload)
    total = sum(counts)
    if not total:
        raise InvalidWorkload("the counts are all 0; give at least one arrival")
    generator = random.Random(seed)  # noqa: S311 - a workload, no secret
    scale = rate_per_s * len(counts) / total
    start, owed = 0.0, generator.expovariate(1.0)
    while True:
        for count in counts:
            rate = count * scale
            passed = 0.0
            while owed <= rate * (TRACE_BIN_S - passed):
                passed += owed / rate
                yield start + passed
                owed = generator.expovariate(1.0)
            owed -= rate * (TRACE_BIN_S - passed)
            start += TRACE_BIN_S


def requests(times: Iterator[float], lengths: Iterator[Lengths]) -> Iterator[Request]:
    """Arrivals with lengths, as long as there are both."""
    for time, pair in zip(times, lengths, strict=False):
        yield Request(arrival_s=time, lengths=pair)


def rate_at_share_of_peak(
    peak_tokens_per_s: float, *, share: float, mean_tokens_per_request: float
) -> float:
    """Requests/s that bring a share of the peak token throughput (Helix §6.2: 0.75).

    Tokens are those of prompts and outputs together, as are the throughput's.
    """
    for name, value in (
        ("peak_tokens_per_s", peak_tokens_per_s),
        ("share", share),
        ("mean_tokens_per_request", mean_tokens_per_request),
    ):
        check(name, value, POSITIVE, error=InvalidWorkload)
    return share * peak_tokens_per_s / mean_tokens_per_request
