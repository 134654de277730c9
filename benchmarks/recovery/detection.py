"""How soon a coordinator knows that a stage is lost: killed, frozen, cut off, hung. Real processes.

    python -m benchmarks.recovery.detection [--repeats N] [--seed N]

A stage of a chain under load is struck at a random moment; the latency is from the blow to the
event in the coordinator's log, to a millisecond. Exits with 1 if p95 is above 0.2 s for a killed
process or 2 s for one that is frozen or cut off, or if a stage was named that was not struck.
"""

import argparse
import os
import random
import re
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import httpx

from benchmarks.recovery.emulated_chain import (
    API_KEY,
    LAYERS,
    MODEL,
    Chain,
    await_that,
    running_chain,
)
from planner.domain.cluster import COORDINATOR

CLIENTS = 3
_EVENT = re.compile(r"^(\S+ \S+) WARNING \S+ lost the stage of '([^']+)': (.*); heard", re.M)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """What is done to a stage, how it ends, and how soon it must be known; None: no bar."""

    name: str
    strike: Callable[[Chain, str], None]
    heal: Callable[[Chain, str], None]
    p95_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A line of the coordinator's log; Unix seconds."""

    at_s: float
    node: str
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """What came of one blow: the first event, and all of that stage until the chain was whole."""

    event: Event
    events: list[Event]
    latency_s: float


def _restart(chain: Chain, node: str) -> None:
    chain.stages[node].forget()
    chain.stages[node].start()


BLOWS = (
    Blow(
        name="killed",
        strike=lambda chain, node: chain.stages[node].signal(signal.SIGKILL),
        heal=_restart,
        p95_s=0.2,
    ),
    Blow(
        name="frozen",
        strike=lambda chain, node: chain.stages[node].signal(signal.SIGSTOP),
        heal=lambda chain, node: chain.stages[node].signal(signal.SIGCONT),
        p95_s=2.0,
    ),
    Blow(
        name="cut off",
        strike=lambda chain, node: chain.cabling.cut(COORDINATOR, node),
        heal=lambda chain, node: chain.cabling.mend_all(),
        p95_s=2.0,
    ),
    Blow(
        name="hung",
        strike=lambda chain, node: chain.hang(node),
        heal=lambda chain, node: chain.go_on(node),
        p95_s=None,
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20, help="of each blow")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    dice = random.Random(options.seed)
    problems: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="recovery-") as name,
        running_chain(Path(name)) as chain,
        _load(chain),
    ):
        time.sleep(2.0)  # turns of every length are known
        began_s = time.monotonic()
        caused: list[Event] = []
        for blow in BLOWS:
            blows = [_strike(chain, blow, dice) for _ in range(options.repeats)]
            problems += _judge(blow, blows)
            caused += [event for each in blows for event in each.events]
        for event in _events(chain):
            if event not in caused:
                problems.append(f"{event.node} was taken for lost without need: {event.cause}")
        print(f"{time.monotonic() - began_s:.0f} s at load {os.getloadavg()[0]:.1f}")
    print("\n".join(problems) or "all within their bars")
    return 1 if problems else 0


def _strike(chain: Chain, blow: Blow, dice: random.Random) -> Struck:
    """One blow, from a whole chain to a whole chain."""
    node = dice.choice(list(LAYERS))
    time.sleep(0.5 + dice.random())
    struck_s = time.time()

    def seen() -> list[Event]:
        return [each for each in _events(chain) if each.node == node and each.at_s >= struck_s]

    blow.strike(chain, node)
    await_that(lambda: bool(seen()), f"{node}, {blow.name}, is missed")
    event = seen()[0]
    blow.heal(chain, node)
    await_that(chain.is_whole, f"{node}, {blow.name}, is back")
    return Struck(event=event, events=seen(), latency_s=event.at_s - struck_s)


def _judge(blow: Blow, blows: list[Struck]) -> Iterator[str]:
    latencies_s = sorted(each.latency_s for each in blows)
    p95_s = latencies_s[min(len(latencies_s) - 1, int(0.95 * len(latencies_s)))]
    causes = sorted({each.event.cause for each in blows})
    print(
        f"{blow.name:8} {len(blows):3} times: p50 {statistics.median(latencies_s):.3f} s, "
        f"p95 {p95_s:.3f} s, worst {latencies_s[-1]:.3f} s; seen as: {'; '.join(causes)}",
        flush=True,
    )
    if blow.p95_s is not None and p95_s > blow.p95_s:
        yield f"{blow.name}: p95 {p95_s:.3f} s is above {blow.p95_s:g} s"


def _events(chain: Chain) -> list[Event]:
    return [
        Event(
            at_s=datetime.strptime(at, "%Y-%m-%d %H:%M:%S,%f").timestamp(),  # noqa: DTZ007 - local
            node=node,
            cause=cause,
        )
        for at, node, cause in _EVENT.findall(chain.log.read_text())
    ]


@contextmanager
def _load(chain: Chain) -> Iterator[None]:
    """A few clients that ask again and again; a request outlives what befalls the stages."""
    ended = threading.Event()

    def ask() -> None:
        body = {"model": MODEL, "prompt": list(range(5, 45)), "max_tokens": 100}
        headers = {"Authorization": f"Bearer {API_KEY}"}
        with httpx.Client(timeout=300) as client:
            while not ended.is_set():
                answer = client.post(f"{chain.url}/v1/completions", json=body, headers=headers)
                answer.raise_for_status()

    clients = [threading.Thread(target=ask) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        ended.set()
        for client in clients:
            client.join()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
