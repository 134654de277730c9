"""A real coordinator and real stages, of a small random checkpoint or one that is given, with a
cable for every pair.

Each pair of processes has a TCP relay of its own in between, so that a link can be cut while its
ends live. A stage that dies is started again at once, as its agent would. The layout leaves a way
around every node but the hub, through which everything goes:

    first-1 \\         / last-1
             hub
    first-2 /         \\ last-2
"""

import contextlib
import hashlib
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from planner.domain.cluster import COORDINATOR, SINK, SOURCE
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Workload
from runtime.coordinator.plan_follower import Stored
from runtime.membership.identity import PLAN_FILE, DataDir, Identity, Membership
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.protocol.control import (
    CoordinatorDesired,
    PeerAddress,
    ServingPlan,
    StageAssignment,
)
from runtime.protocol.engines import AUTOMATIC, EngineSettings
from runtime.protocol.stage_pipe import StageLaunch
from runtime.transport.zmq_sockets import KeyPair
from tests.e2e.cut_cable import Cabling
from tests.waiting import until

API_KEY = "hlxk_chaos"
MODEL = "random"
SIZES = TinySizes(
    num_layers=6,
    hidden_size=32,
    intermediate_size=64,
    vocab_size=300,
    max_position_embeddings=512,
    dtype="bfloat16",
)
LAYERS = {
    "first-1": (0, 2),
    "first-2": (0, 2),
    "hub": (2, 4),
    "last-1": (4, 6),
    "last-2": (4, 6),
}
_WEIGHTS = {
    SOURCE: {"first-1": 1.0, "first-2": 1.0},
    "first-1": {"hub": 1.0},
    "first-2": {"hub": 1.0},
    "hub": {"last-1": 1.0, "last-2": 1.0},
    "last-1": {SINK: 1.0},
    "last-2": {SINK: 1.0},
}
_PAGE_TOKENS = 16
_CONTEXT = 512
_BUDGET_BYTES = 64 * 2**20
_LOSS = re.compile(r"^(\S+ \S+) WARNING \S+ lost the ((?:stage of|link) [^;]+)", re.MULTILINE)
_LEAVE_WITHIN_S = 5.0
_DEAD_FOR_S = 0.2  # until whoever watches a process starts it again


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What the stages compute. Where `layers` of nodes overlap, requests go on where the node
    before them left off."""

    checkpoint: Path
    num_layers: int = SIZES.num_layers
    layers: Mapping[str, tuple[int, int]] = field(default_factory=lambda: LAYERS)
    weights: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: _WEIGHTS)
    engines: Mapping[str, EngineSettings] = field(default_factory=dict)
    budget_bytes: int = _BUDGET_BYTES
    fronts: Sequence[str] = (COORDINATOR,)


@dataclass(slots=True, kw_only=True)
class _Stage:
    launch: StageLaunch
    process: subprocess.Popen[bytes]
    starts: int = 1


class ChaosCluster:
    """Made by `running_cluster`. `urls` are where clients ask, by coordinator."""

    def __init__(self, folder: Path, cabling: Cabling) -> None:
        self.urls: dict[str, str] = {}
        self.cabling = cabling
        self._folder = folder
        self._stages: dict[str, _Stage] = {}
        self._coordinators: dict[str, subprocess.Popen[bytes]] = {}
        self._closing = threading.Event()
        self._watch = threading.Thread(target=self._restart_dead, name="supervisor")

    @property
    def url(self) -> str:
        return self.urls[COORDINATOR]

    def kill(self, node: str) -> None:
        self._stages[node].process.kill()

    def kill_coordinator(self, name: str) -> None:
        """It is gone afterwards: nothing connects to it any more."""
        self._coordinators[name].kill()
        self._coordinators[name].wait()

    def tell_to_end(self, node: str) -> None:
        self._stages[node].process.terminate()

    def tell_coordinator_to_end(self) -> subprocess.Popen[bytes]:
        """Its process, which is to be waited for; `start_coordinator` starts another."""
        self._coordinators[COORDINATOR].terminate()
        return self._coordinators[COORDINATOR]

    def freeze(self, node: str) -> None:
        self._stages[node].process.send_signal(signal.SIGSTOP)

    def thaw(self, node: str) -> None:
        self._stages[node].process.send_signal(signal.SIGCONT)

    def starts(self) -> dict[str, int]:
        """How often the stage of each node was started."""
        return {node: stage.starts for node, stage in self._stages.items()}

    def health(self) -> dict[str, Any]:
        state: dict[str, Any] = httpx.get(f"{self.url}/health", timeout=10).json()
        return state

    def pages_held(self) -> dict[str, int]:
        """Pages of requests per node, as each stage told last; nodes with none are left out."""
        last = {node: self.stats(node)[-1:] for node in self._stages}
        held = {node: told["kv_pages_used"] for node, stats in last.items() for told in stats}
        return {node: pages for node, pages in held.items() if pages}

    def coordinator_log(self) -> str:
        return (self._folder / "coordinator.log").read_text()

    def losses(self) -> list[tuple[float, str]]:
        """When (Unix seconds) the coordinator noticed which loss, by its log."""
        found = _LOSS.findall(self.coordinator_log())
        return [
            (datetime.strptime(at, "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp(), what)
            for at, what in found
        ]

    def stats(self, node: str) -> list[dict[str, int]]:
        """What its process reported, oldest first, without a line that it is writing."""
        text = (self._folder / f"{node}.{self._stages[node].starts}.events").read_text()
        lines = text[: text.rfind("\n") + 1].splitlines()
        return [json.loads(line)["stats"] for line in lines if '"stats"' in line]

    def stage_log(self, node: str) -> str:
        return (self._folder / f"{node}.{self._stages[node].starts}.log").read_text()

    def start(self, served: Served) -> None:
        folder = self._folder
        checkpoint = served.checkpoint
        names = (*served.fronts, *served.layers)
        keys = {name: KeyPair.load_or_create(folder / name / "curve.key") for name in names}
        ports = {name: _free_port() for name in names}
        peers = {
            viewer: tuple(
                PeerAddress(
                    name=name,
                    endpoint=f"tcp://127.0.0.1:{self.cabling.lay(viewer, name, ports[name])}",
                    public_key=keys[name].public_key,
                )
                for name in (served.layers if viewer in served.fronts else names)
                if name != viewer
            )
            for viewer in names
        }
        for name, (first, end) in served.layers.items():
            launch = StageLaunch(
                assignment=StageAssignment(
                    deployment_id=1,
                    generation=1,
                    model_name=MODEL,
                    checkpoint=str(checkpoint),
                    first=first,
                    end=end,
                    num_layers=served.num_layers,
                    page_tokens=_PAGE_TOKENS,
                    max_context_tokens=_CONTEXT,
                    peers=peers[name],
                ),
                name=name,
                bind=f"tcp://127.0.0.1:{ports[name]}",
                secret_key_file=str(folder / name / "curve.key"),
                public_key=keys[name].public_key,
                memory_budget_bytes=served.budget_bytes,
                engine=served.engines.get(name, AUTOMATIC),
                leave_within_s=_LEAVE_WITHIN_S,
            )
            self._stages[name] = _Stage(launch=launch, process=self._start_stage(launch, number=1))
        plan = ServingPlan(
            deployment_id=1,
            generation=1,
            model_name=MODEL,
            checkpoint=str(checkpoint),
            num_layers=served.num_layers,
            partial_inference=served.layers != LAYERS,
            placement=Placement(
                layers={name: LayerRange(first=a, end=b) for name, (a, b) in served.layers.items()}
            ),
            routing_weights=served.weights,
            workload=Workload(mean_prompt_tokens=64, mean_output_tokens=64),
            max_context_tokens=_CONTEXT,
            page_tokens=_PAGE_TOKENS,
            peers=(),
        )
        for name in served.fronts:
            own = plan.model_copy(update={"peers": peers[name]})
            _write_coordinator(folder / name, own, name=name, data_port=ports[name])
            self.urls[name] = f"http://127.0.0.1:{_free_port()}"
            self.start_coordinator(name)
        self._watch.start()

    def start_coordinator(self, name: str = COORDINATOR) -> None:
        """Returns when it serves; its log starts empty. One before it must have ended."""
        if name in self._coordinators:
            _forget(self._coordinators[name])
        self._coordinators[name] = _start(
            self._folder / f"{name}.log",
            self._folder / f"{name}.out",
            "coordinator",
            "--server=http://127.0.0.1:9",  # where nothing listens: it goes by what it has
            f"--name={name}",
            f"--data-dir={self._folder / name}",
            f"--port={self.urls[name].rpartition(':')[2]}",
            "--request-timeout=60",
        )
        until(lambda: self._serves(name), f"{name} serves; logs are in {self._folder}")

    def close(self) -> None:
        self._closing.set()
        if self._watch.is_alive():
            self._watch.join()
        stages = (stage.process for stage in self._stages.values())
        processes = [*stages, *self._coordinators.values()]
        for process in processes:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGINT)  # at once
        for process in processes:
            _forget(process)

    def _start_stage(self, launch: StageLaunch, *, number: int) -> subprocess.Popen[bytes]:
        name = self._folder / f"{launch.name}.{number}"
        process = _start(Path(f"{name}.log"), Path(f"{name}.events"), "stage")
        if process.stdin is None:
            raise RuntimeError("the stage was started without a pipe to its stdin")
        process.stdin.write(launch.to_line())
        process.stdin.flush()
        return process

    def _restart_dead(self) -> None:
        while not self._closing.wait(_DEAD_FOR_S):
            for stage in self._stages.values():
                if stage.process.poll() is not None:
                    _forget(stage.process)
                    stage.starts += 1
                    stage.process = self._start_stage(stage.launch, number=stage.starts)

    def _serves(self, name: str) -> bool:
        for stage in self._stages.values():
            assert stage.process.poll() is None, f"{stage.launch.name} ended; see {self._folder}"
        with contextlib.suppress(httpx.TransportError):  # not listening yet
            return httpx.get(f"{self.urls[name]}/health", timeout=5).is_success
        return False


@contextmanager
def running_cluster(folder: Path, served: Served | None = None) -> Iterator[ChaosCluster]:
    """Ready to serve; everything ends with the block. Without `served`: a small checkpoint."""
    if served is None:
        served = Served(checkpoint=folder / "checkpoint")
        make_tiny_checkpoint(served.checkpoint, sizes=SIZES, seed=5)
    with Cabling().relaying() as cabling:
        cluster = ChaosCluster(folder, cabling)
        try:
            cluster.start(served)
            yield cluster
        finally:
            cluster.close()


def _start(log: Path, out: Path, program: str, *options: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as errors, out.open("wb") as told:
        return subprocess.Popen(
            [sys.executable, "-m", "runtime", program, *options],
            stdin=subprocess.PIPE,
            stdout=told,
            stderr=errors,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )


def _forget(process: subprocess.Popen[bytes]) -> None:
    process.wait(60)
    if process.stdin is not None:
        process.stdin.close()


def _write_coordinator(directory: Path, plan: ServingPlan, *, name: str, data_port: int) -> None:
    DataDir(directory).save_identity(
        Identity(
            node_uuid=str(uuid.uuid4()),
            data_port=data_port,
            membership=Membership(
                name=name, cluster="chaos", credential="none", heartbeat_interval_s=60
            ),
        )
    )
    key_hash = hashlib.sha256(API_KEY.encode()).hexdigest()
    desired = CoordinatorDesired(generation=1, plan=plan, api_key_hashes=(key_hash,))
    DataDir(directory).save_wanted(PLAN_FILE, Stored.of(desired))


def _free_port() -> int:
    """Below those the kernel gives to whoever asks for any, of which cables take many."""
    while True:
        port = secrets.randbelow(12_000) + 20_000
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
