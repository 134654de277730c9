"""A real coordinator and real stages on loopback, each a process of its own, without helixweb.

The coordinator finds what helixweb would have told it in its data directory, as after a restart
while helixweb is down.
"""

import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import httpx
import psutil

from planner.domain.cluster import COORDINATOR, SINK, SOURCE
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Workload
from runtime.coordinator.plan_follower import Stored
from runtime.membership.identity import PLAN_FILE, DataDir, Identity, Membership
from runtime.protocol.control import (
    CoordinatorDesired,
    PeerAddress,
    ServingPlan,
    StageAssignment,
)
from runtime.protocol.engines import AUTOMATIC, EngineSettings
from runtime.protocol.stage_pipe import StageLaunch
from runtime.transport.zmq_sockets import KeyPair

API_KEY = "hlxk_benchmark"
MODEL = "random"
PAGE_TOKENS = 16
_STARTS_WITHIN_S = 900  # vLLM compiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Where clients reach it, and the processes that work for them."""

    url: str
    processes: tuple[psutil.Process, ...]

    def cpu_s(self) -> float:
        """CPU seconds, user and system, of all its processes so far."""
        spent = [process.cpu_times() for process in self.processes]
        return sum(each.user + each.system for each in spent)


@contextmanager
def running_chain(
    checkpoint: Path,
    folder: Path,
    *,
    stages: int,
    num_layers: int,
    threads: int,
    memory_budget_bytes: int,
    max_context_tokens: int,
    mean_output_tokens: float,
    engine: EngineSettings = AUTOMATIC,
    max_batch_tokens: int = 512,
    emulation: Path | None = None,
    stage_program: Sequence[str] = ("-m", "runtime", "stage"),
    shares_port: bool = False,
) -> Iterator[Running]:
    """As many equal stages one behind the other, ready to serve; with `emulation`, the file of a
    node, they run no model. `stage_program`: what Python runs for each. `shares_port`: clients
    and stages reach the coordinator at one port."""
    names = [f"node-{index}" for index in range(stages)]
    borders = [index * num_layers // stages for index in range(stages + 1)]
    layers = dict(zip(names, pairwise(borders), strict=True))
    folder.mkdir(parents=True)
    keys = {
        name: KeyPair.load_or_create(folder / name / "curve.key") for name in (COORDINATOR, *names)
    }
    ports = {name: free_port() for name in keys}
    peers = tuple(
        PeerAddress(
            name=name, endpoint=f"tcp://127.0.0.1:{ports[name]}", public_key=keys[name].public_key
        )
        for name in keys
    )
    plan = ServingPlan(
        deployment_id=1,
        generation=1,
        model_name=MODEL,
        checkpoint=str(checkpoint),
        num_layers=num_layers,
        partial_inference=False,
        placement=Placement(
            layers={name: LayerRange(first=a, end=b) for name, (a, b) in layers.items()}
        ),
        routing_weights={one: {other: 1.0} for one, other in pairwise((SOURCE, *names, SINK))},
        workload=Workload(mean_prompt_tokens=64, mean_output_tokens=mean_output_tokens),
        max_context_tokens=max_context_tokens,
        page_tokens=PAGE_TOKENS,
        peers=peers,
    )
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    started: list[subprocess.Popen[bytes]] = []
    try:
        for name, (first, end) in layers.items():
            launch = StageLaunch(
                assignment=StageAssignment(
                    deployment_id=1,
                    generation=1,
                    model_name=MODEL,
                    checkpoint=str(checkpoint),
                    first=first,
                    end=end,
                    num_layers=num_layers,
                    page_tokens=PAGE_TOKENS,
                    max_context_tokens=max_context_tokens,
                    max_batch_tokens=max_batch_tokens,
                    peers=peers,
                ),
                name=name,
                bind=f"tcp://127.0.0.1:{ports[name]}",
                secret_key_file=str(folder / name / "curve.key"),
                public_key=keys[name].public_key,
                memory_budget_bytes=memory_budget_bytes,
                threads=threads,
                engine=engine,
            )
            emulated = [] if emulation is None else [f"--emulate={emulation}"]
            log = folder / f"{name}.log"
            started.append(_start(log, environment, *stage_program, *emulated))
            _tell(started[-1], launch)
        port = ports[COORDINATOR] if shares_port else free_port()
        _write_coordinator(folder / COORDINATOR, plan, data_port=ports[COORDINATOR])
        started.append(
            _start(
                folder / "coordinator.log",
                environment,
                *("-m", "runtime", "coordinator"),
                "--server=http://127.0.0.1:9",  # no site is there: it goes by what it has
                f"--data-dir={folder / COORDINATOR}",
                f"--port={port}",
                "--request-timeout=3600",
            )
        )
        url = f"http://127.0.0.1:{port}"
        await_ready(url, started, folder)
        yield Running(url=url, processes=tuple(psutil.Process(each.pid) for each in started))
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(60)


def _start(log: Path, environment: dict[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    """Python with these arguments. Its log goes to `log`, what it tells its agent to a file
    `.events` beside it."""
    with log.open("wb") as errors, log.with_suffix(".events").open("wb") as events:
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=events,
            stderr=errors,
            env=environment,
        )


def _tell(stage: subprocess.Popen[bytes], launch: StageLaunch) -> None:
    if stage.stdin is None:
        raise RuntimeError("the stage was started without a pipe to its stdin")
    stage.stdin.write(launch.to_line())
    stage.stdin.flush()


def _write_coordinator(directory: Path, plan: ServingPlan, *, data_port: int) -> None:
    DataDir(directory).save_identity(
        Identity(
            node_uuid=str(uuid.uuid4()),
            data_port=data_port,
            membership=Membership(
                name=COORDINATOR, cluster="benchmark", credential="none", heartbeat_interval_s=60
            ),
        )
    )
    key_hash = hashlib.sha256(API_KEY.encode()).hexdigest()
    desired = CoordinatorDesired(generation=1, plan=plan, api_key_hashes=(key_hash,))
    DataDir(directory).save_wanted(PLAN_FILE, Stored.of(desired))


def await_ready(url: str, started: list[subprocess.Popen[bytes]], folder: Path) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < deadline:
        for process in started:
            if process.poll() is not None:
                raise RuntimeError(f"{process.args!r} ended; its log is in {folder}")
        try:
            if httpx.get(f"{url}/health", timeout=5).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass  # not listening yet
        time.sleep(0.2)
    raise RuntimeError(f"not ready within {_STARTS_WITHIN_S} s; the logs are in {folder}")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
