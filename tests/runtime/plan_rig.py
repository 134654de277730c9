"""A plan follower with everything it drives, for tests."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
from coordinator_doubles import (
    Clock,
    ScriptedStages,
    make_dispatcher,
    make_instances,
    routing,
    serving_plan,
    write_checkpoint,
)

from runtime.api.access import ApiKeys
from runtime.coordinator.live_request import LiveRequest
from runtime.coordinator.plan_follower import PlanFollower
from runtime.coordinator.reporter import build_report
from runtime.membership.identity import DataDir
from runtime.protocol.control import (
    AgentIdentity,
    CoordinatorDesired,
    Hardware,
    LinkStats,
    PeerAddress,
)
from runtime.protocol.data import Sampling
from runtime.protocol.weight_access import WeightAccess

ANNOUNCEMENT = AgentIdentity(
    hardware=Hardware(hostname="h", cpu_count=1, memory_bytes=1, memory_budget_bytes=1),
    data_endpoint="tcp://127.0.0.1:1",
    data_public_key="k" * 40,
)
SHA256_OF_ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


class Follower:
    """A follower with everything it drives, as one process start would make it."""

    def __init__(self, data_dir: Path) -> None:
        self.clock = Clock()
        self.stages = ScriptedStages(lambda prompt: [65, 66, 257])
        self.dispatcher, self.stats = make_dispatcher(self.stages, clock=self.clock)
        self.instances, _ = make_instances(
            self.dispatcher, http=httpx.AsyncClient(), clock=self.clock
        )
        self.keys = ApiKeys()
        self.peers: list[tuple[PeerAddress, ...]] = []
        self.links: dict[str, LinkStats] = {}
        self.follower = PlanFollower(
            dispatcher=self.dispatcher,
            keys=self.keys,
            data_dir=DataDir(data_dir),
            set_peers=self.peers.append,
            routing=routing(),
            weights=lambda: WeightAccess(directory=str(data_dir / "weights")),
        )

    def apply(self, desired: CoordinatorDesired) -> None:
        asyncio.run(self.follower.apply(desired))

    @property
    def report(self) -> Any:
        return build_report(
            dispatcher=self.dispatcher,
            instances=self.instances,
            stats=self.stats,
            follower=self.follower,
            now=self.clock(),
            links=self.links,
        )


def desired_state(directory: Path) -> CoordinatorDesired:
    """A plan of generation 7 whose checkpoint is in `directory`."""
    plan = serving_plan(write_checkpoint(directory / "checkpoint"))
    return CoordinatorDesired(generation=7, plan=plan, api_key_hashes=(SHA256_OF_ABC,))


def submit_to(one: Follower) -> LiveRequest:
    return one.dispatcher.submit(
        one.dispatcher.plans.ready(),
        prompt_ids=[1, 2, 3],
        sampling=Sampling(
            temperature=0, top_p=1, top_k=0, seed=1, max_tokens=9, stop_token_ids=(257,)
        ),
        stop_strings=(),
    )
