"""What a cluster delivers when three times as much is asked of it: real processes, emulated steps.

    python -m benchmarks.recovery.overload [--seconds S] [--factor F] [--seed N]

First as many clients as keep it busy ask again and again: what they get is its capacity. Then
requests come at random moments, `--factor` times as many as it can serve. Goodput is tokens of
whole answers per second of the same cluster; who is refused gets 429 and does not come again.
Exits with 1 below 95 % of capacity, for an answer that is neither whole nor a 429, for more
requests waiting than is configured, and for a process that grew by more than 16 MiB.
"""

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks.recovery.emulated_chain import API_KEY, MODEL, Chain, running_chain

PROMPT = list(range(5, 45))
# Of many lengths: answers of one length end in waves, of which a window holds one more or less.
OUTPUT_TOKENS = (50, 150)
CLIENTS = 100  # about 45 run at once, the others wait
MOST_WAITING = 64  # ServingPlan's default
LEAST_GOODPUT = 0.95
FLAT_BYTES = 16 * 2**20
_WARM_UP_S = 10.0


@dataclass(slots=True, kw_only=True)
class Tally:
    """What came of requests, and when whole answers of how many tokens came (monotonic)."""

    answered: list[tuple[float, int]] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)

    def tokens_per_s(self, begin_s: float, end_s: float) -> float:
        whole = sum(tokens for at_s, tokens in self.answered if begin_s <= at_s < end_s)
        return whole / (end_s - begin_s)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="of overload")
    parser.add_argument("--factor", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="overload-") as name,
        running_chain(Path(name)) as chain,
    ):
        problems = asyncio.run(_measure(chain, options))
    print("\n".join(problems) or "all within their bars")
    return 1 if problems else 0


async def _measure(chain: Chain, options: argparse.Namespace) -> list[str]:
    async with httpx.AsyncClient(
        base_url=chain.url,
        headers={"Authorization": f"Bearer {API_KEY}"},
        timeout=300,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=100),
    ) as client:
        dice = random.Random(options.seed)
        capacity = await _capacity(client, dice, seconds=max(20.0, options.seconds / 2))
        per_s = options.factor * capacity / statistics.mean(OUTPUT_TOKENS)
        if not capacity:
            return ["no request was answered in time; is the machine busy?"]
        print(f"capacity {capacity:.0f} tokens/s; now {per_s:.1f} requests/s", flush=True)
        before = chain.resident_bytes()
        tally, most_waiting, goodput = await _overload(
            client, dice, per_s=per_s, seconds=options.seconds
        )
    after = chain.resident_bytes()
    took_s = sorted(tally.took_s)
    p99_s = took_s[int(0.99 * (len(took_s) - 1))] if took_s else float("nan")
    print(
        f"goodput {goodput:.0f} tokens/s, {goodput / capacity:.3f} of capacity; at most "
        f"{most_waiting} waited; answers took p50 {took_s[len(took_s) // 2]:.2f} s, p99 "
        f"{p99_s:.2f} s;",
        ", ".join(f"{count} {what}" for what, count in sorted(tally.outcomes.items())),
    )
    for process, held in after.items():
        print(f"{process}: {held / 2**20:.1f} MiB, {(held - before[process]) / 2**20:+.1f}")
    return list(
        _problems(tally, most_waiting, goodput / capacity, {n: after[n] - before[n] for n in after})
    )


def _problems(
    tally: Tally, most_waiting: int, share: float, grown_bytes: dict[str, int]
) -> Iterator[str]:
    if share < LEAST_GOODPUT:
        yield f"goodput is {share:.3f} of capacity, below {LEAST_GOODPUT}"
    if most_waiting > MOST_WAITING:
        yield f"{most_waiting} requests waited; {MOST_WAITING} are configured"
    strange = tally.outcomes.keys() - {"answered", "refused"}
    yield from (f"{tally.outcomes[what]} times {what}" for what in strange)
    for process, grown in grown_bytes.items():
        if grown > FLAT_BYTES:
            yield f"{process} has grown by {grown / 2**20:.1f} MiB"


async def _capacity(client: httpx.AsyncClient, dice: random.Random, *, seconds: float) -> float:
    tally = Tally()
    end_s = time.monotonic() + _WARM_UP_S + seconds

    async def ask() -> None:
        while time.monotonic() < end_s:
            if await _one(client, dice, tally) == "refused":
                await asyncio.sleep(0.2)

    await asyncio.gather(*(ask() for _ in range(CLIENTS)))
    return tally.tokens_per_s(end_s - seconds, end_s)


async def _overload(
    client: httpx.AsyncClient, dice: random.Random, *, per_s: float, seconds: float
) -> tuple[Tally, int, float]:
    """The tally, the most that waited at once, and whole tokens/s once it is busy."""
    tally = Tally()
    begin_s = time.monotonic()
    at_s, end_s = begin_s, begin_s + _WARM_UP_S + seconds
    most_waiting = 0
    asked: set[asyncio.Task[str]] = set()
    look_s = begin_s
    while at_s < end_s:
        at_s += dice.expovariate(per_s)
        await asyncio.sleep(max(0.0, at_s - time.monotonic()))
        task = asyncio.create_task(_one(client, dice, tally))
        asked.add(task)
        task.add_done_callback(asked.discard)
        if at_s > look_s:
            look_s = at_s + 1.0
            state = (await client.get("/health")).json()
            most_waiting = max(most_waiting, state["requests_waiting"])
    goodput = tally.tokens_per_s(begin_s + _WARM_UP_S, end_s)
    await asyncio.gather(*asked)
    return tally, most_waiting, goodput


async def _one(client: httpx.AsyncClient, dice: random.Random, tally: Tally) -> str:
    asked_s, tokens = time.monotonic(), dice.randint(*OUTPUT_TOKENS)
    body = {"model": MODEL, "prompt": PROMPT, "max_tokens": tokens}
    answer = await client.post("/v1/completions", json=body)
    now_s = time.monotonic()
    outcome = f"status {answer.status_code}"
    if answer.status_code == httpx.codes.OK:
        outcome = "answered"
        tally.answered.append((now_s, tokens))
        tally.took_s.append(now_s - asked_s)
    elif answer.status_code == httpx.codes.TOO_MANY_REQUESTS and "Retry-After" in answer.headers:
        outcome = "refused"
    tally.outcomes[outcome] += 1
    return outcome


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
