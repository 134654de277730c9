"""Real stages in one process whose generations change; the test plays coordinator and agent."""

import time
from collections.abc import Callable
from pathlib import Path

from engine_under_test import open_launch
from in_memory_network import InMemoryNetwork
from stage_cluster import GENERATION, OURS, PAGE_TOKENS, Answer, NeverWaits, StageCluster

from runtime.engine.backend import Opened
from runtime.engine.generation import Generation
from runtime.engine.stage import Stage
from runtime.engine.stage_process import StageProcess
from runtime.protocol.control import StageAssignment
from runtime.protocol.data import Kind, Message, StageStatus
from runtime.protocol.stage_pipe import StageEvent, StageLaunch

NEXT = GENERATION + 1
CONTEXT_TOKENS = 128
STEP_TOKENS = PAGE_TOKENS  # what no budget makes smaller
PATIENCE_S = 90.0  # a bound on hanging, not a measurement


class ChangingStages(StageCluster):
    """As `StageCluster`, but opened as a launch opens them, within a budget of bytes each."""

    def __init__(
        self, checkpoint: Path, layers: dict[str, range], *, budget_bytes: int, num_layers: int
    ) -> None:
        network = InMemoryNetwork()
        self.coordinator = network.join("coordinator")
        self.answers: dict[tuple[int, int], Answer] = {}
        self.statuses: dict[str, StageStatus] = {}
        self.told: dict[tuple[str, int], StageStatus] = {}
        self.stages: dict[str, Stage] = {}
        self.opened: dict[str, Opened] = {}
        self.processes: dict[str, StageProcess] = {}
        self.events: dict[str, list[StageEvent]] = {name: [] for name in layers}
        self.transports = {"coordinator": self.coordinator}
        for name, held in layers.items():
            assignment = StageAssignment(
                deployment_id=1,
                generation=GENERATION,
                model_name="tiny",
                checkpoint=str(checkpoint),
                first=held.start,
                end=held.stop,
                num_layers=num_layers,
                page_tokens=PAGE_TOKENS,
                max_batch_tokens=STEP_TOKENS,
                max_context_tokens=CONTEXT_TOKENS,
                peers=(),
            )
            launch = StageLaunch(
                assignment=assignment,
                name=name,
                bind="tcp://127.0.0.1:0",
                secret_key_file="",
                public_key="k" * 40,
                memory_budget_bytes=budget_bytes,
            )
            opened = open_launch(launch)
            self.opened[name] = opened
            self.transports[name] = network.join(name)
            self.processes[name] = StageProcess(tell=self.events[name].append)
            self.stages[name] = Stage(
                name,
                opened,
                NeverWaits(self.transports[name]),
                OURS,
                generation=GENERATION,
                process=self.processes[name],
            )

    def add(self, layers: dict[str, range], *, generation: int = NEXT) -> None:
        for name, held in layers.items():
            self.processes[name].orders.put(Generation(number=generation, layers=held))

    def retire(self, generation: int, *, sender: str = "coordinator") -> None:
        """Have every stage hear of it, and act on it."""
        for name in self.stages:
            if name != sender:
                message = Message(kind=Kind.RETIRE, generation=generation)
                self.transports[sender].send(name, message)
        self.turn()

    def heard(self, name: str, kind: type[StageEvent]) -> list[StageEvent]:
        return [event for event in self.events[name] if isinstance(event, kind)]

    def until_heard(self, kind: type[StageEvent], *, times: int = 1) -> None:
        """From every stage; requests go on meanwhile."""
        self.until(lambda: all(len(self.heard(name, kind)) >= times for name in self.stages))

    def until(self, condition: Callable[[], bool]) -> None:
        """Layers are loaded by threads, so turns alone are no measure of how long it may take."""
        ends_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < ends_s, self.events
            self.turn()
