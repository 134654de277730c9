"""Streams that ask one after the other, and when each of their tokens came.

Every question has one right answer, the one it got before anything was disturbed: sampling is
greedy. Times are seconds of the monotonic clock.
"""

import asyncio
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import httpx

_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request and what came of it; `problem` says what is wrong, empty when nothing is."""

    began_s: float
    came_s: tuple[float, ...]
    problem: str = ""

    @property
    def tpot_s(self) -> float | None:
        """Of one token there is none."""
        if len(self.came_s) < 2:
            return None
        return (self.came_s[-1] - self.came_s[0]) / (len(self.came_s) - 1)

    @property
    def longest_wait_s(self) -> float:
        """For its first token, or between two."""
        return max((b - a for a, b in pairwise((self.began_s, *self.came_s))), default=0.0)


@dataclass(slots=True, kw_only=True)
class SteadyStreams:
    """`streams` requests at any time, `requests` in all; `ended` has those that are over."""

    client: httpx.AsyncClient
    model: str
    questions: Sequence[str]
    output_tokens: int
    ended: list[Asked] = field(default_factory=list)
    _right: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _begun: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def learn(self) -> None:
        """The right answers, one at a time. Raises RuntimeError when one fails."""
        for question in self.questions:
            asked, token_ids = await self._ask(question)
            if asked.problem:
                raise RuntimeError(f"an undisturbed request failed: {asked.problem}")
            self._right[question] = token_ids

    async def go_on(self, *, streams: int, requests: int) -> None:
        """Until that many requests have ended."""

        async def one() -> None:
            while self._begun < requests:
                question = self.questions[self._begun % len(self.questions)]
                self._begun += 1
                asked, token_ids = await self._ask(question)
                if not asked.problem and token_ids != self._right[question]:
                    asked = Asked(
                        began_s=asked.began_s,
                        came_s=asked.came_s,
                        problem=_difference(token_ids, self._right[question]),
                    )
                self.ended.append(asked)
                self._news.set()

        await asyncio.gather(*(one() for _ in range(streams)))

    async def until(self, requests: int) -> None:
        """Return when so many have ended."""
        while len(self.ended) < requests:
            self._news.clear()
            await self._news.wait()

    async def _ask(self, question: str) -> tuple[Asked, tuple[int, ...]]:
        began_s, came_s, token_ids, problem = time.monotonic(), [], [], ""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": question}],
            "temperature": 0,
            "max_tokens": self.output_tokens,
            "stream": True,
            "return_token_ids": True,
        }
        try:
            async with self.client.stream("POST", "/v1/chat/completions", json=body) as answer:
                if answer.is_error:
                    told = (await answer.aread()).decode(errors="replace")
                    problem = f"refused with {answer.status_code}: {told[:300]}"
                async for line in answer.aiter_lines():
                    if not line.startswith("data: {"):
                        continue
                    event = json.loads(line.removeprefix("data: "))
                    if "error" in event:
                        problem = f"ended by an error: {json.dumps(event['error'])[:300]}"
                    for choice in event.get("choices", ()):
                        new = choice.get("token_ids") or ()
                        token_ids += new
                        came_s += [time.monotonic()] * len(new)
        except httpx.HTTPError as error:  # told at the end; the others go on
            problem = f"{type(error).__name__}: {error}"
        asked = Asked(began_s=began_s, came_s=tuple(came_s), problem=problem)
        return asked, tuple(token_ids)


def _difference(got: Sequence[int], right: Sequence[int]) -> str:
    at = next((n for n, (a, b) in enumerate(zip(got, right, strict=False)) if a != b), None)
    if at is None:
        return f"{len(got)} tokens instead of {len(right)}"
    return f"token {got[at]} instead of {right[at]} at position {at} of {len(right)}"


def steady_tpot_s(asked: Sequence[Asked]) -> float:
    """The median over these requests."""
    return statistics.median(one.tpot_s for one in asked if one.tpot_s is not None)


def share_above(
    asked: Sequence[Asked], *, bar_s: float, begin_s: float, end_s: float, bin_s: float = 1.0
) -> float:
    """Of the whole bins from `begin_s` on, the share with a mean gap between tokens above `bar_s`.

    A gap counts in the bin in which it ends. A bin in which no token came is above.
    """
    bins = [[] for _ in range(math.floor((end_s - begin_s) / bin_s))]
    for one in asked:
        for before_s, at_s in pairwise(one.came_s):
            number = math.floor((at_s - begin_s) / bin_s)
            if 0 <= number < len(bins):
                bins[number].append(at_s - before_s)
    above = [not gaps or statistics.fmean(gaps) > bar_s for gaps in bins]
    return statistics.fmean(above) if above else 0.0


def until_true(is_so: Callable[[], bool], what: str, *, within_s: float) -> float:
    """When `is_so` was first true. Raises TimeoutError."""
    until_s = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > until_s:
            raise TimeoutError(f"waited {within_s:.0f} s in vain until {what}")
        time.sleep(0.05)
    return time.monotonic()
