"""Asks an endpoint with so many requests at once, each stream beginning anew when it ended."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from helixweb.client import ClientError
from helixweb.command_line.openai_stream import PATH, TIMEOUT, chunk_of, refusal

PERCENTILES = (50, 95, 99)
_MOST_KINDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """One answer. TPOT is (e2e - TTFT)/(output tokens - 1), None for a single token."""

    ttft_s: float
    e2e_s: float
    output_tokens: int

    @property
    def tpot_s(self) -> float | None:
        if self.output_tokens < 2:
            return None
        return (self.e2e_s - self.ttft_s) / (self.output_tokens - 1)


@dataclass(slots=True, kw_only=True)
class Measured:
    """What a run saw; `failures` by what the endpoint said."""

    streams: int
    finished: list[Finished] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    wall_s: float = 0.0

    def summary(self) -> dict[str, Any]:
        """As `--json` prints it."""
        tokens = sum(one.output_tokens for one in self.finished)
        tpots = [one.tpot_s for one in self.finished if one.tpot_s is not None]
        return {
            "streams": self.streams,
            "requests": len(self.finished) + self.failures.total(),
            "failed": self.failures.total(),
            "failures": dict(self.failures.most_common(_MOST_KINDS)),
            "wall_s": self.wall_s,
            "output_tokens": tokens,
            "output_tokens_per_s": tokens / self.wall_s if self.wall_s else None,
            "requests_per_s": len(self.finished) / self.wall_s if self.wall_s else None,
            "ttft_s": percentiles([one.ttft_s for one in self.finished]),
            "tpot_s": percentiles(tpots),
            "e2e_s": percentiles([one.e2e_s for one in self.finished]),
        }


def percentiles(values: Sequence[float]) -> dict[str, float | None]:
    """By nearest rank, so that each is a value that was measured."""
    ordered = sorted(values)
    return {
        f"p{share}": ordered[max(0, -(-share * len(ordered) // 100) - 1)] if ordered else None
        for share in PERCENTILES
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """`body_of(number)` is the request of that number. Ends after `requests` or `seconds`."""

    url: str
    key: str
    streams: int
    requests: int | None
    seconds: float | None
    body_of: Callable[[int], dict[str, Any]]


async def run_closed_loop(
    load: Load,
    measured: Measured,
    *,
    tell: Callable[[Measured], None],
    transport: httpx.AsyncBaseTransport | None,
) -> None:
    """Adds to `measured`, which also tells of a run that was broken off; `tell` hears of every
    answer."""
    begin = time.monotonic()
    end = None if load.seconds is None else begin + load.seconds
    numbers = iter(range(load.requests)) if load.requests is not None else iter(range(2**62))
    headers = {"Authorization": f"Bearer {load.key}"} if load.key else {}
    limits = httpx.Limits(max_connections=load.streams)
    async with httpx.AsyncClient(
        timeout=TIMEOUT, transport=transport, headers=headers, limits=limits
    ) as http:

        async def one_stream() -> None:
            for number in numbers:
                if end is not None and time.monotonic() >= end:
                    return
                try:
                    measured.finished.append(await _one(http, load, number))
                except (ClientError, httpx.TransportError) as error:
                    measured.failures[str(error) or type(error).__name__] += 1
                measured.wall_s = time.monotonic() - begin
                tell(measured)

        async with asyncio.TaskGroup() as group:
            for _ in range(load.streams):
                group.create_task(one_stream())
    measured.wall_s = time.monotonic() - begin


async def _one(http: httpx.AsyncClient, load: Load, number: int) -> Finished:
    begin, first, tokens, pieces = time.monotonic(), None, None, 0
    async with http.stream("POST", load.url + PATH, json=load.body_of(number)) as answer:
        if not answer.is_success:
            await answer.aread()
            raise refusal(answer)
        async for line in answer.aiter_lines():
            chunk = chunk_of(line)
            if chunk is None:
                continue
            if chunk.text:
                pieces += 1
                first = first or time.monotonic()
            tokens = chunk.completion_tokens or tokens
    ended = time.monotonic()
    if first is None:
        raise ClientError("an answer without any text")
    return Finished(ttft_s=first - begin, e2e_s=ended - begin, output_tokens=tokens or pieces)
