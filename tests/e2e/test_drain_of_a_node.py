"""A node is drained under load: no answer differs by a token, and it holds nothing in the end.

Real stage processes as agents run them; the coordinator runs in the test.
"""

import asyncio
import random
from pathlib import Path

import pytest

from planner.domain.cluster import SINK, SOURCE
from runtime.models.tiny_checkpoint import make_tiny_checkpoint
from runtime.protocol.control import CoordinatorDesired, DesiredState, ServingPlan
from tests.e2e.test_plan_follows_plan import SIZES, Cluster, until

pytestmark = pytest.mark.e2e

LAYERS = {"one": (0, 3), "two": (3, 6), "three": (3, 6)}
WEIGHTS = {
    SOURCE: {"one": 1.0},
    "one": {"two": 1.0, "three": 1.0},
    "two": {SINK: 1.0},
    "three": {SINK: 1.0},
}
CLIENTS = 2
TOKENS = 60


class Forked(Cluster):
    """Requests can do without "two" or "three"; `drain` is what helixweb would say."""

    def plan(self, layers: dict[str, tuple[int, int]]) -> ServingPlan:
        first = {name: layers[name] for name in ("one", "two")}
        straight = super().plan(first)
        return straight.model_copy(
            update={
                "placement": super().plan(layers).placement,
                "routing_weights": WEIGHTS,
                "peers": tuple(self.nodes[name].address for name in layers),
            }
        )

    async def drain(self, *names: str) -> None:
        wanted = CoordinatorDesired(generation=1, plan=self.plan(LAYERS), draining=names)
        await self.front.follower.apply(wanted)

    def holds(self, name: str) -> bool:
        return self.nodes[name].supervisor.local.running is not None

    def runs_through(self, name: str) -> bool:
        return name in self.front.dispatcher.nodes_in_use


def test_a_node_is_left_free_without_a_wrong_token(tmp_path: Path) -> None:
    make_tiny_checkpoint(tmp_path / "checkpoint", sizes=SIZES, seed=5)
    asyncio.run(drain_under_load(tmp_path))


async def drain_under_load(folder: Path) -> None:
    cluster = Forked(folder, folder / "checkpoint")
    works = [asyncio.create_task(work) for work in cluster.works()]
    try:
        await cluster.deploy(LAYERS)
        await cluster.until_served()
        front, dice = cluster.front, random.Random(3)
        prompts = [[dice.randrange(5, 260) for _ in range(30)] for _ in range(CLIENTS)]
        right = [await front.ask(prompt, tokens=TOKENS) for prompt in prompts]
        over = asyncio.Event()
        wrong: list[list[int]] = []

        async def client(number: int) -> None:
            while not over.is_set():
                answer = await front.ask(prompts[number], tokens=TOKENS)
                if answer != right[number]:
                    wrong.append(answer)
                await asyncio.sleep(0.5)

        clients = [asyncio.create_task(client(number)) for number in range(CLIENTS)]
        await until(lambda: cluster.runs_through("three"), "requests run through it")
        await cluster.drain("three")
        progress = front.dispatcher.draining.progress
        await until(lambda: not progress()["three"].requests, "no request is left on it")
        assert not progress()["three"].needed
        cluster.nodes["three"].want(DesiredState(generation=1))
        await until(lambda: not cluster.holds("three"), "it holds nothing")
        asked = len(front.epochs)
        await until(lambda: len(front.epochs) >= asked + CLIENTS, "answers come without it")
        over.set()
        await asyncio.gather(*clients)
        assert wrong == []
        assert max(front.epochs) <= 1 + front.silences, "they moved once"
        await until(lambda: not cluster.pages_held(), "all pages are given back")
    finally:
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        for node in cluster.nodes.values():
            await node.supervisor.stop()
        cluster.front.transport.close()
