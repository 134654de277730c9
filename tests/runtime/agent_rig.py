"""A node's agent with fake stages, against a fake web site; and what is wanted of it."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

import fake_stage
import psutil
from fake_web import PATIENCE_S, FakeWeb, wait_until
from free_port import free_port

from runtime.agent import agent
from runtime.agent.instance_specs import InstanceSettings
from runtime.agent.node_log import NodeLog
from runtime.agent.supervisor import PROFILE_COMMAND, StageSettings
from runtime.agent.vllm_facts import VllmFacts
from runtime.membership.identity import Applicant, DataDir, Joined, join
from runtime.protocol.control import AgentIdentity, DesiredState, Hardware, Role, StageAssignment
from runtime.protocol.engines import AUTOMATIC, EngineSettings
from runtime.protocol.phases import Phase
from runtime.web_client import WebClient

ANNOUNCEMENT = AgentIdentity(
    hardware=Hardware(hostname="h", cpu_count=1, memory_bytes=9, memory_budget_bytes=5),
    data_endpoint=f"tcp://127.0.0.1:{free_port()}",
    data_public_key="k" * 40,
    version="1",
)


def assignment(behaviour: str, generation: int = 1) -> StageAssignment:
    """`behaviour` is what the fake stage does."""
    return StageAssignment(
        deployment_id=1,
        generation=generation,
        model_name="tiny",
        checkpoint=behaviour,
        first=0,
        end=4,
        num_layers=8,
        max_context_tokens=128,
        peers=(),
    )


def wants(generation: int, behaviour: str = "serves") -> DesiredState:
    return DesiredState(generation=generation, assignment=assignment(behaviour, generation))


class Node:
    """One machine's agent, started as often as wanted from one data directory."""

    def __init__(self, directory: Path, web: FakeWeb) -> None:
        self.data_dir = DataDir(directory / "data")
        self.record = directory / "record"
        self.web = web
        self.stopped, self.hurry = asyncio.Event(), asyncio.Event()
        self.agent: agent.Agent | None = None
        self.profile_command = PROFILE_COMMAND

    async def join(self, *, token: str | None = None, name: str | None = "n1") -> Joined:
        async with WebClient(self.web.url) as client:
            return await self._join(client, token=token, name=name)

    async def _join(self, client: WebClient, *, token: str | None, name: str | None) -> Joined:
        applicant = Applicant(
            role=Role.NODE,
            name=name,
            region="eu",
            join_token=token,
            announcement=ANNOUNCEMENT,
        )
        identity = self.data_dir.load_identity(fresh_uuid="a" * 32)
        return await join(client, self.data_dir, identity, applicant, rng=random.Random(1))

    @asynccontextmanager
    async def running(
        self,
        *,
        token: str | None = None,
        in_a_hurry: bool = True,
        leave_within_s: float = 20.0,
        vllm_facts: VllmFacts | None = None,
    ) -> AsyncIterator["asyncio.Task[None]"]:
        """The agent's life as a task; stopped on leaving."""
        self.stopped, self.hurry = asyncio.Event(), asyncio.Event()
        async with WebClient(self.web.url, rng=random.Random(2)) as client:
            made = agent.Agent(
                client,
                agent.Node(
                    joined=await self._join(client, token=token, name="n1"),
                    announcement=ANNOUNCEMENT,
                    data_dir=self.data_dir,
                    log=NodeLog(),
                ),
                stages=StageSettings(
                    name="n1",
                    bind=ANNOUNCEMENT.data_endpoint,
                    secret_key_file=str(self.data_dir.key_file),
                    public_key=ANNOUNCEMENT.data_public_key,
                    memory_budget_bytes=5,
                    relative_speed=1.0,
                    threads=1,
                    leave_within_s=leave_within_s,
                    engine=EngineSettings(python=vllm_facts.python) if vllm_facts else AUTOMATIC,
                    command=(sys.executable, fake_stage.__file__, str(self.record)),
                    profile_command=self.profile_command,
                ),
                instances=InstanceSettings(
                    host="127.0.0.1",
                    memory_budget_bytes=5,
                    memory_bytes=(10,),
                    gpus=(),
                    gpu_budgets_bytes=(),
                    relative_speed=1.0,
                    threads=1,
                    emulated=False,
                ),
                rng=random.Random(3),
                goodbye_within_s=PATIENCE_S,
                vllm_facts=vllm_facts,
            )
            self.agent = made
            life = asyncio.create_task(made.run(self.stopped, hurry=self.hurry))
            try:
                yield life
            finally:
                if in_a_hurry:
                    self.hurry.set()
                self.stopped.set()
                await asyncio.wait([life])
        if life.exception() is None:
            assert not self.living()

    @property
    def starts(self) -> list[tuple[int, int]]:
        """(pid, generation) of each stage that was started."""
        if not self.record.exists():
            return []
        lines = self.record.read_text().splitlines()
        return [(int(line.split()[0]), int(line.split()[1])) for line in lines]

    def living(self) -> list[int]:
        return [pid for pid, _ in self.starts if psutil.pid_exists(pid)]

    async def until(self, condition: Callable[[], object], *, what: str) -> None:
        await asyncio.to_thread(wait_until, condition, what=what)

    async def until_ready(self, generation: int) -> None:
        def is_ready() -> bool:
            last = self.web.last
            return (
                last is not None
                and (last.generation, last.phase) == (generation, Phase.READY)
                and last.stage == fake_stage.STATS
            )

        await self.until(is_ready, what=f"generation {generation} is ready")


def run(work: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 3 * PATIENCE_S))
