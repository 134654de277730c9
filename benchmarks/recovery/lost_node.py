"""A node of the demo's cluster is killed for good: how long until a plan without it serves.

    python -m benchmarks.recovery.lost_node [--node NAME] [--streams N]

Site, worker, coordinator and four agents as `make demo` starts them, under the policy "automatic".
Streams run all the while; every answer must be the one it was before, token for token. Prints when
the loss was noticed, planned around, deployed and served without, in seconds after the kill, and
what the streams saw. Ends with 1 if an answer is wrong or missing.
"""

import argparse
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import psutil

from benchmarks.recovery.demo_cluster import DemoCluster, running_demo
from helixweb.demo.processes import DemoFailed

QUESTIONS = ("What is HelixWeb?", "What is a pipeline?", "Where did this answer run?")
_LOOKS_S = 0.05
_WITHIN_S = 180.0
_AFTERWARDS_S = 10.0


class Load:
    """Streams that ask one after the other, and what they got."""

    def __init__(self, ask: Callable[[str], list[int]]) -> None:
        self._ask = ask
        self._expected = {question: ask(question) for question in QUESTIONS}
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self.taken_s: list[tuple[float, float]] = []  # when it began, how long it took
        self.wrong: list[str] = []

    @contextmanager
    def running(self, streams: int) -> Iterator[None]:
        """As many at once."""
        with ThreadPoolExecutor(streams) as pool:
            jobs = [pool.submit(self._go_on, number) for number in range(streams)]
            try:
                yield
            finally:
                self._ended.set()
            for job in jobs:
                job.result()

    def _go_on(self, number: int) -> None:
        while not self._ended.is_set():
            question = QUESTIONS[number % len(QUESTIONS)]
            began_s = time.monotonic()
            try:
                right = self._ask(question) == self._expected[question]
                problem = "" if right else "another answer than before"
            except (httpx.HTTPError, DemoFailed) as error:  # told at the end; the others go on
                problem = f"{type(error).__name__}: {error}"
            with self._lock:
                self.taken_s.append((began_s, time.monotonic() - began_s))
                if problem:
                    self.wrong.append(problem)
            number += 1


def moments_of(
    signs: Mapping[str, Callable[[], bool]], *, in_vain: Callable[[], str]
) -> dict[str, float]:
    """When each was first so, by the monotonic clock.

    Raises TimeoutError, also as soon as `in_vain` says why the others will never be.
    """
    until_s = time.monotonic() + _WITHIN_S
    found: dict[str, float] = {}
    while missing := sorted(signs.keys() - found.keys()):
        for what in missing:
            if signs[what]():
                found[what] = time.monotonic()
        if why := in_vain():
            raise TimeoutError(f"waited in vain until {', '.join(missing)}: {why}")
        if time.monotonic() > until_s:
            raise TimeoutError(f"waited {_WITHIN_S:.0f} s in vain until {', '.join(missing)}")
        time.sleep(_LOOKS_S)
    return found


def kill_machine(pid: int) -> None:
    """The agent and its stage, as when a machine's power fails."""
    agent = psutil.Process(pid)
    for process in (agent, *agent.children(recursive=True)):
        process.send_signal(signal.SIGKILL)


def measure(demo: DemoCluster, *, node: str, streams: int) -> int:
    """Everything from the ready deployment on; returns the exit status."""
    scenario, site = demo.scenario, demo.site
    site.patch(f"clusters/{demo.cluster_id}/", {"replanning": "automatic"})

    def ask(question: str) -> list[int]:
        answer = scenario.ask(demo.key, question)
        return list(answer["choices"][0]["token_ids"])

    def coordinator_says(word: str) -> bool:
        answer = httpx.get(f"{scenario.places.coordinator_url}/health", timeout=5.0)
        return bool(answer.json()["status"] == word)

    def the_coordinator_noticed() -> bool:
        log = scenario.places.data_dir / "logs" / "coordinator.log"
        return f"lost the stage of {node!r}" in log.read_text(errors="replace")

    def repair() -> dict[str, Any]:
        return next(iter(site.results("repairs/")), {"state": "none"})

    def newest() -> dict[str, Any]:
        return site.results("deployments/", cluster=demo.cluster_id)[0]

    def nothing_is_deployed() -> str:
        row = repair()
        ended = row["state"] in ("needless", "failed", "dismissed")
        return f"the repair is {row['state']} {row['why']}" if ended else ""

    before = newest()["id"]
    load = Load(ask)
    with load.running(streams):
        time.sleep(_AFTERWARDS_S)
        killed_s = time.monotonic()
        kill_machine(scenario.nodes[node].process.pid)
        moments = moments_of(
            {
                "the coordinator knows": the_coordinator_noticed,
                "the site knows": lambda: repair()["state"] != "none",
                "it searches": lambda: repair()["state"] not in ("none", "waiting"),
                "the plan is deployed": lambda: newest()["id"] != before,
                "it serves": lambda: (
                    newest()["id"] != before
                    and newest()["status"] == "ready"
                    and coordinator_says("ok")
                ),
            },
            in_vain=nothing_is_deployed,
        )
        time.sleep(_AFTERWARDS_S)
    for what, at_s in moments.items():
        print(f"{what:<24}{at_s - killed_s:7.2f} s after the kill")
    calm = [took_s for began_s, took_s in load.taken_s if began_s + took_s < killed_s]
    served_s = moments["it serves"]
    struck = [
        took_s
        for began_s, took_s in load.taken_s
        if began_s < served_s and began_s + took_s > killed_s
    ]
    print(
        f"{len(load.taken_s)} answers, {len(load.wrong)} wrong or missing; an answer took "
        f"{statistics.median(calm):.2f} s before, {statistics.median(struck):.2f} s (at most "
        f"{max(struck):.2f} s) while {node} was missed"
    )
    for problem in sorted(set(load.wrong)):
        print(f"  {problem}")
    return 1 if load.wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--node", default="desktop", help="which of the demo's nodes is killed")
    parser.add_argument("--streams", type=int, default=4)
    asked = parser.parse_args()
    with running_demo() as demo:
        return measure(demo, node=asked.node, streams=asked.streams)


if __name__ == "__main__":
    sys.exit(main())
