"""Under load one plan follows another and is followed by the first, and then a node is drained: no
answer differs by a token.

Real stage processes of a small checkpoint, started and added to as agents do it, over real sockets;
the coordinator runs in the test. Two nodes hold other layers under the second plan, which has one
more: it comes, and it leaves.
"""

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from helixweb.demo.processes import free_port
from planner.domain.cluster import COORDINATOR, SINK, SOURCE
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Workload
from runtime.agent.reconcile import AddGeneration, StartStage, look_again_at_s, next_action
from runtime.agent.supervisor import StageSettings, Supervisor
from runtime.api.access import ApiKeys
from runtime.coordinator.answering import QUIET_S, arriving
from runtime.coordinator.dispatcher import Dispatcher
from runtime.coordinator.plan_follower import PlanFollower
from runtime.coordinator.request_stats import RequestStats
from runtime.coordinator.serving import Routing
from runtime.membership.identity import DataDir
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.process_log import ProcessLog
from runtime.protocol.control import (
    CoordinatorDesired,
    DesiredState,
    PeerAddress,
    ServingPlan,
    StageAssignment,
)
from runtime.protocol.data import Sampling
from runtime.transport.heartbeats import Loss
from runtime.transport.zmq_sockets import KeyPair
from runtime.transport.zmq_transport import AsyncZmqTransport
from tests.waiting import PATIENCE_S, until_async

pytestmark = pytest.mark.e2e

Layers: TypeAlias = dict[str, tuple[int, int]]
Weights: TypeAlias = dict[str, dict[str, float]]

SIZES = TinySizes(
    num_layers=6,
    hidden_size=32,
    intermediate_size=64,
    vocab_size=300,
    max_position_embeddings=512,
)
FIRST = {"one": (0, 3), "two": (3, 6)}
SECOND = {"one": (0, 2), "two": (2, 4), "three": (4, 6)}
NODES = ("one", "two", "three")
# Requests can do without "two" or "three".
FORKED = {"one": (0, 3), "two": (3, 6), "three": (3, 6)}
FORK = {
    SOURCE: {"one": 1.0},
    "one": {"two": 1.0, "three": 1.0},
    "two": {SINK: 1.0},
    "three": {SINK: 1.0},
}
CONTEXT = 512
LENGTHS = (10, 100)  # tokens of answers; the longer ones move at the deadline
MIGRATE_AFTER_S = 0.5


class Node:
    """An agent without helixweb: goes after what is desired, step by step."""

    def __init__(self, name: str, folder: Path, port: int) -> None:
        keys = KeyPair.load_or_create(folder / name / "curve.key")
        self.address = PeerAddress(
            name=name, endpoint=f"tcp://127.0.0.1:{port}", public_key=keys.public_key
        )
        self.desired = DesiredState(generation=0)
        self.starts = 0
        self._changed = asyncio.Event()
        self.supervisor = Supervisor(
            settings=StageSettings(
                name=name,
                bind=self.address.endpoint,
                secret_key_file=str(folder / name / "curve.key"),
                public_key=keys.public_key,
                memory_budget_bytes=64 * 2**20,
                relative_speed=1.0,
                threads=1,
            ),
            log=ProcessLog(folder / f"{name}.log"),
            on_change=self._changed.set,
        )

    def want(self, desired: DesiredState) -> None:
        self.desired = desired
        self._changed.set()

    async def follow(self) -> None:
        while True:
            self._changed.clear()
            local, now_s = self.supervisor.local, time.monotonic()
            action = next_action(self.desired, local, now_s=now_s)
            if isinstance(action, StartStage):
                self.starts += 1
                await self.supervisor.start(action.assignment)
            elif isinstance(action, AddGeneration):
                await self.supervisor.add(action.assignment)
            elif action is not None:
                await self.supervisor.stop()
            else:
                again_s = look_again_at_s(self.desired, local)
                # `wait_for` of Python 3.11 forgets a cancellation that comes with the change
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if again_s is None else again_s - now_s):
                        await self._changed.wait()


class Front:
    """The coordinator's parts, and clients that ask them directly."""

    def __init__(self, folder: Path) -> None:
        keys = KeyPair.load_or_create(folder / COORDINATOR / "curve.key")
        self.transport = AsyncZmqTransport(
            name=COORDINATOR, bind=f"tcp://127.0.0.1:{free_port()}", keys=keys
        )
        self.address = PeerAddress(
            name=COORDINATOR, endpoint=self.transport.endpoint, public_key=keys.public_key
        )
        ids = itertools.count(1)
        self.dispatcher = Dispatcher(
            transport=self.transport,
            stats=RequestStats(window_s=10.0, clock=time.monotonic),
            clock=time.monotonic,
            new_request_id=lambda: next(ids),
            request_timeout_s=PATIENCE_S,
            migrate_after_s=MIGRATE_AFTER_S,
        )
        self.follower = PlanFollower(
            dispatcher=self.dispatcher,
            keys=ApiKeys(),
            data_dir=DataDir(folder),
            set_peers=self.transport.set_peers,
            routing=Routing(name="iwrr", rng=random.Random(1), clock=time.monotonic),
        )
        self.epochs: list[int] = []  # of requests that have ended
        self.silences = 0  # of nodes that a busy machine kept from answering: requests move on

    async def receive(self) -> None:
        while True:
            for received in await self.transport.receive():
                self.dispatcher.receive(received)

    async def see(self) -> None:
        while True:
            for peer_event in await self.transport.peer_events():
                self.silences += peer_event.loss is Loss.SILENT
                self.dispatcher.see(peer_event)

    async def tick(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            self.dispatcher.expire()
            self.follower.follow_peers()

    async def ask(self, prompt: list[int], *, tokens: int) -> list[int]:
        """The answer's tokens. Raises RequestFailed, NotServing."""
        request = self.dispatcher.submit(
            self.dispatcher.plans.open(),
            prompt_ids=prompt,
            sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0, max_tokens=tokens),
            stop_strings=(),
        )
        try:
            told = arriving([request], quiet_s=QUIET_S)
            return [delta.token_id async for arrived in told for _, delta in arrived]
        finally:
            self.epochs.append(request.epoch)
            self.dispatcher.end(request)


class Cluster:
    """Nodes and front; `deploy` is what helixweb would do."""

    def __init__(self, folder: Path, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.front = Front(folder)
        self.nodes = {name: Node(name, folder, free_port()) for name in NODES}
        self.generation = 0

    def works(self) -> list[Coroutine[Any, Any, None]]:
        front = self.front
        return [
            front.receive(),
            front.see(),
            front.tick(),
            *(node.follow() for node in self.nodes.values()),
        ]

    async def deploy(self, layers: Layers, weights: Weights | None = None) -> None:
        self.generation += 1
        for name, node in self.nodes.items():
            assignment = None
            if name in layers:
                others = [self.nodes[other].address for other in layers if other != name]
                assignment = self.assignment(*layers[name], (*others, self.front.address))
            node.want(
                DesiredState(
                    generation=self.generation,
                    assignment=assignment,
                    continues=self.generation > 1,
                )
            )
        plan = self.plan(layers, weights)
        await self.front.follower.apply(CoordinatorDesired(generation=plan.generation, plan=plan))

    def assignment(self, first: int, end: int, peers: tuple[PeerAddress, ...]) -> StageAssignment:
        return StageAssignment(
            deployment_id=1,
            generation=self.generation,
            model_name="random",
            checkpoint=str(self.checkpoint),
            first=first,
            end=end,
            num_layers=SIZES.num_layers,
            max_context_tokens=CONTEXT,
            peers=peers,
        )

    def plan(self, layers: Layers, weights: Weights | None = None) -> ServingPlan:
        """Without weights: one way through all."""
        way = [SOURCE, *layers, SINK]
        return ServingPlan(
            deployment_id=1,
            generation=self.generation,
            model_name="random",
            checkpoint=str(self.checkpoint),
            num_layers=SIZES.num_layers,
            partial_inference=False,
            placement=Placement(
                layers={name: LayerRange(first=a, end=b) for name, (a, b) in layers.items()}
            ),
            routing_weights=weights or {a: {b: 1.0} for a, b in itertools.pairwise(way)},
            workload=Workload(mean_prompt_tokens=32, mean_output_tokens=64),
            max_context_tokens=CONTEXT,
            peers=tuple(self.nodes[name].address for name in layers),
        )

    async def until_served(self) -> None:
        """The newest plan is up, and nothing runs under the one before."""
        plans = self.front.dispatcher.plans

        def is_so() -> bool:
            newest = plans.of(self.generation)
            return newest is plans.serving and newest.is_up and plans.leaving is None

        await until_async(is_so, f"generation {self.generation} alone serves")

    def holds(self, name: str) -> bool:
        return self.nodes[name].supervisor.local.running is not None

    def pages_held(self) -> dict[str, int]:
        running = {name: node.supervisor.local.running for name, node in self.nodes.items()}
        return {
            name: stage.stats.kv_pages_used
            for name, stage in running.items()
            if stage is not None and stage.stats is not None and stage.stats.kv_pages_used
        }


def test_plans_follow_each_other_and_a_node_is_drained_without_a_wrong_token(
    tmp_path: Path,
) -> None:
    make_tiny_checkpoint(tmp_path / "checkpoint", sizes=SIZES, seed=5)
    asyncio.run(change_under_load(tmp_path))


async def change_under_load(folder: Path) -> None:
    cluster = Cluster(folder, folder / "checkpoint")
    works = [asyncio.create_task(work) for work in cluster.works()]
    try:
        await one_plan_follows_another(cluster)
        await a_node_is_drained(cluster)
        await until_async(lambda: not cluster.pages_held(), "all pages are given back")
    finally:
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        for node in cluster.nodes.values():
            await node.supervisor.stop()
        cluster.front.transport.close()


async def one_plan_follows_another(cluster: Cluster) -> None:
    front = cluster.front
    await cluster.deploy(FIRST)
    await cluster.until_served()
    async with asking(front):
        await cluster.deploy(SECOND)
        await cluster.until_served()
        await cluster.deploy(FIRST)
        await cluster.until_served()
        await until_async(
            lambda: len(front.epochs) > 2 * len(LENGTHS), "many were answered meanwhile"
        )
    await until_async(lambda: not cluster.holds("three"), "it has left")
    assert [node.starts for node in cluster.nodes.values()] == [1, 1, 1]
    allowed = 2 + front.silences
    assert max(front.epochs) <= allowed, "a request moves at most once with each change"


async def a_node_is_drained(cluster: Cluster) -> None:
    """It holds nothing in the end; requests can do without it."""
    front = cluster.front
    await cluster.deploy(FORKED, FORK)
    await cluster.until_served()
    silences = front.silences
    async with asking(front):
        in_use = front.dispatcher
        await until_async(lambda: "three" in in_use.nodes_in_use, "requests run through it")
        plan = cluster.plan(FORKED, FORK)
        wanted = CoordinatorDesired(generation=plan.generation, plan=plan, draining=("three",))
        await front.follower.apply(wanted)
        progress = front.dispatcher.draining.progress
        await until_async(lambda: not progress()["three"].requests, "no request is left on it")
        assert not progress()["three"].needed
        cluster.nodes["three"].want(DesiredState(generation=plan.generation))
        await until_async(lambda: not cluster.holds("three"), "it holds nothing")
        asked = len(front.epochs)
        more = asked + len(LENGTHS)
        await until_async(lambda: len(front.epochs) >= more, "answers come without it")
    assert max(front.epochs) <= 1 + front.silences - silences, "they moved once"


@asynccontextmanager
async def asking(front: Front) -> AsyncIterator[None]:
    """Within, clients ask the same again and again; each answer must equal the first."""
    dice = random.Random(3)
    cases = [([dice.randrange(5, 260) for _ in range(30)], tokens) for tokens in LENGTHS]
    right = [await front.ask(prompt, tokens=tokens) for prompt, tokens in cases]
    front.epochs.clear()
    over = asyncio.Event()

    async def client(number: int) -> None:
        prompt, tokens = cases[number]
        while not over.is_set():
            assert await front.ask(prompt, tokens=tokens) == right[number]
            await asyncio.sleep(0.3)

    clients = [asyncio.create_task(client(number)) for number in range(len(cases))]
    try:
        yield
    finally:
        over.set()
        await asyncio.gather(*clients)
