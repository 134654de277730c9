"""One plan follows another under load, and back: what do clients notice?

    python -m benchmarks.recovery.change_of_plan [--requests N] [--streams N] [--without NODE]
                                                 [--memory-factor F]

Site, worker, coordinator and four agents as `make demo` starts them. Streams ask all the while;
after a third of the requests a plan without `--without` is deployed, after two thirds the first one
is brought back by a roll back. Every answer must be the one it was before, token for token. A
second is slow when the mean gap between tokens that came in it is above twice the steady TPOT, or
none came. `--memory-factor`: how much more memory agents have than their plans count on; with 1
there may be no room for layers beside those that serve, and stages are restarted.

Ends with 1 if an answer is wrong or missing, or if more than a fifth of the seconds from the first
order to the end of the second change are slow.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from benchmarks.recovery.demo_cluster import DemoCluster, running_demo
from benchmarks.recovery.steady_streams import (
    Asked,
    SteadyStreams,
    share_above,
    steady_tpot_s,
    until_true,
)
from helixweb.demo.local_cluster import TINY
from helixweb.demo.scenario import MAX_TOKENS
from helixweb.demo.site import Site, wait_until

QUESTIONS = (
    "What is HelixWeb?",
    "What is a pipeline?",
    "Where did this answer run?",
    "How many layers does a node hold?",
)
MOST_SLOW = 0.2
_SLOW = 2.0  # times the steady TPOT
_WITHIN_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSeen:
    """Of one change: when it was ordered, when new requests ran under it, when all was over."""

    name: str
    ordered_s: float
    serves_s: float
    over_s: float

    def line(self) -> str:
        return (
            f"{self.name}: serves {self.serves_s - self.ordered_s:.1f} s after the order, nothing "
            f"is left of what was before after {self.over_s - self.ordered_s:.1f} s"
        )


async def measure(demo: DemoCluster, *, streams: int, requests: int, without: str) -> int:
    """Everything from the ready deployment on; returns the exit status."""
    other = await asyncio.to_thread(_plan_without, demo, without)
    async with httpx.AsyncClient(
        base_url=demo.scenario.places.coordinator_url,
        headers={"Authorization": f"Bearer {demo.key}"},
        timeout=120.0,
    ) as client:
        load = SteadyStreams(
            client=client,
            model=TINY.name,
            questions=QUESTIONS,
            output_tokens=MAX_TOKENS,
        )
        await load.learn()
        running = asyncio.create_task(load.go_on(streams=streams, requests=requests))
        await load.until(requests // 3)
        calm = tuple(load.ended)
        first = await asyncio.to_thread(
            _change, demo, f"without {without}", "deployments/", {**_OPTIONS, "plan": other["id"]}
        )
        await load.until(2 * requests // 3)
        newest = demo.site.results("deployments/", cluster=demo.cluster_id)[0]
        back = await asyncio.to_thread(
            _change, demo, "back", f"deployments/{newest['id']}/roll-back/", {}
        )
        await running
    return _tell(load.ended, calm, (first, back))


_OPTIONS = {"max_batch_tokens": TINY.max_batch_tokens}


def _plan_without(demo: DemoCluster, node: str) -> dict[str, Any]:
    model = next(r for r in demo.site.results("models/") if r["name"] == TINY.name)
    run = demo.site.post(
        "plan-runs/",
        {
            "cluster": demo.cluster_id,
            "model": model["id"],
            "options": {
                "objective": "flow",
                "time_limit_s": 10,
                "rules": {"excluded_nodes": [node]},
            },
        },
    )

    def finished() -> bool:
        return bool(demo.site.get(f"plan-runs/{run['id']}/")["status"] not in ("queued", "running"))

    wait_until(
        "the other plan is computed",
        finished,
        timeout_s=_WITHIN_S,
        check_alive=demo.scenario.processes.check_alive,
    )
    run = demo.site.get(f"plan-runs/{run['id']}/")
    if run["status"] != "succeeded":
        raise RuntimeError(f"the plan run {run['status']}: {run['error']}; leave out another node")
    return dict(demo.site.get(f"plans/{run['plan']}/"))


def _change(demo: DemoCluster, name: str, address: str, content: dict[str, Any]) -> ChangeSeen:
    ordered_s = time.monotonic()
    deployment = demo.site.post(address, content)
    url = f"{demo.scenario.places.coordinator_url}/health"

    def serves() -> bool:
        state = httpx.get(url, timeout=10.0).json()
        return bool(state["status"] == "ok" and state["generation"] == deployment["generation"])

    def is_over() -> bool:
        return _took_over(demo.site, deployment["id"])

    return ChangeSeen(
        name=name,
        ordered_s=ordered_s,
        serves_s=until_true(serves, "the new plan serves", within_s=_WITHIN_S),
        over_s=until_true(is_over, "the plan before has gone", within_s=_WITHIN_S),
    )


def _took_over(site: Site, deployment: int) -> bool:
    return site.get(f"deployments/{deployment}/")["took_over_at"] is not None


def _tell(ended: Sequence[Asked], calm: Sequence[Asked], changes: Sequence[ChangeSeen]) -> int:
    steady_s = steady_tpot_s(calm)
    wrong = [asked for asked in ended if asked.problem]
    begin_s, end_s = changes[0].ordered_s, changes[-1].over_s
    if max(asked.came_s[-1] for asked in ended if asked.came_s) < end_s:
        print("the requests ended before the second change did: ask more of them")
        return 1
    struck = [
        asked
        for asked in ended
        if asked.came_s and asked.began_s < end_s and asked.came_s[-1] > begin_s
    ]

    def share(begin_s: float, end_s: float) -> float:
        return share_above(ended, bar_s=_SLOW * steady_s, begin_s=begin_s, end_s=end_s)

    for change in changes:
        print(change.line() + f"; {share(change.ordered_s, change.over_s):.0%} of it slow")
    print(
        f"{len(ended)} answers, {len(wrong)} wrong or missing; steady TPOT {1000 * steady_s:.1f} "
        f"ms; longest wait for a token {max(one.longest_wait_s for one in calm):.2f} s before and "
        f"{max((one.longest_wait_s for one in struck), default=0.0):.2f} s from the first order on"
    )
    slow = share(begin_s, end_s)
    print(
        f"slow seconds (mean gap above {_SLOW:g} times the steady TPOT): "
        f"{share(calm[0].began_s, begin_s):.1%} before, {slow:.1%} from the first order to the end "
        f"of the second change, at most {MOST_SLOW:.0%} wanted"
    )
    for problem in sorted({asked.problem for asked in wrong}):
        print(f"  {problem}")
    return 1 if wrong or slow > MOST_SLOW else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--without", default="mini", help="the node that the other plan leaves out")
    parser.add_argument("--memory-factor", type=float, default=2.0)
    asked = parser.parse_args()
    budgets = {node.name: int(node.memory_bytes * asked.memory_factor) for node in TINY.nodes}
    with running_demo(
        options_of=lambda node: ("--memory-budget-bytes", str(budgets[node]))
    ) as demo:
        return asyncio.run(
            measure(demo, streams=asked.streams, requests=asked.requests, without=asked.without)
        )


if __name__ == "__main__":
    sys.exit(main())
