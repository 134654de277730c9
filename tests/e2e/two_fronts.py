"""Two coordinators and two stages of a small random checkpoint as processes, on loopback."""

import hashlib
import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from helixweb.demo.processes import free_port
from planner.domain.cluster import SINK, SOURCE
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Workload
from runtime.agent.identity import DataDir, Identity, Membership
from runtime.coordinator.plan_store import PlanStore
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.protocol.control import (
    CoordinatorDesired,
    PeerAddress,
    ServingPlan,
    StageAssignment,
)
from runtime.protocol.stage_pipe import StageLaunch
from runtime.transport.keys import KeyPair

API_KEY = "hlxk_two"
MODEL = "random"
FRONTS = ("coordinator", "coordinator:2")
SIZES = TinySizes(
    num_layers=4,
    hidden_size=32,
    intermediate_size=64,
    vocab_size=300,
    max_position_embeddings=1024,
)
STAGES = {"one": (0, 2), "two": (2, 4)}
CONTEXT = 1024
PATIENCE_S = 300.0  # a bound on hanging, not a measurement


class TwoFronts:
    """Made by `two_fronts`. `urls` are where clients ask, by coordinator."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._checkpoint = folder / "checkpoint"
        # each request by a connection of its own, so that a balancer may send it elsewhere
        self.client = httpx.Client(
            headers={"Authorization": f"Bearer {API_KEY}"},
            timeout=PATIENCE_S,
            limits=httpx.Limits(max_keepalive_connections=0),
        )
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        names = (*FRONTS, *STAGES)
        self._keys = {name: KeyPair.load_or_create(folder / name / "curve.key") for name in names}
        self._ports = {name: free_port() for name in names}
        self._http = {name: free_port() for name in FRONTS}
        self.urls = {name: f"http://127.0.0.1:{port}" for name, port in self._http.items()}

    def start(self) -> None:
        make_tiny_checkpoint(self._checkpoint, sizes=SIZES, seed=5)
        for name, (first, end) in STAGES.items():
            launch = StageLaunch(
                assignment=StageAssignment(
                    deployment_id=1,
                    generation=1,
                    model_name=MODEL,
                    checkpoint=str(self._checkpoint),
                    first=first,
                    end=end,
                    num_layers=SIZES.num_layers,
                    max_context_tokens=CONTEXT,
                    peers=self._addresses(each for each in self._ports if each != name),
                ),
                name=name,
                bind=f"tcp://127.0.0.1:{self._ports[name]}",
                secret_key_file=str(self._folder / name / "curve.key"),
                public_key=self._keys[name].public_key,
                memory_budget_bytes=8 * 2**20,
            )
            stdin = self._start(name, "stage").stdin
            assert stdin is not None
            stdin.write(launch.to_line())
            stdin.flush()
        for name in FRONTS:
            self._remember_plan(self._folder / name, name)
            self._start(
                name,
                "coordinator",
                "--server=http://127.0.0.1:9",  # nobody there: it goes by what it has
                f"--name={name}",
                f"--data-dir={self._folder / name}",
                f"--port={self._http[name]}",
                f"--data-port={self._ports[name]}",  # held here until the tests end
            )
        self.until(self._serve, "both coordinators serve")

    def _serve(self) -> bool:
        ended = [name for name, process in self._processes.items() if process.poll() is not None]
        assert not ended, f"{ended} ended; see {self._folder}"
        return all(map(self.is_healthy, FRONTS))

    def kill(self, name: str) -> None:
        """It is gone afterwards: nobody connects to it any more."""
        self._processes[name].kill()
        self._processes[name].wait()

    def is_healthy(self, name: str) -> bool:
        with suppress(httpx.TransportError):
            return self.client.get(f"{self.urls[name]}/health").status_code == httpx.codes.OK
        return False

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline_s, f"never happened: {what}; see {self._folder}"
            time.sleep(0.1)

    def stats(self, stage: str) -> list[dict[str, Any]]:
        """What it told of itself, oldest first; a line that it is writing does not count yet."""
        text = (self._folder / f"{stage}.out").read_text()
        lines = text[: text.rfind("\n") + 1].splitlines()
        return [json.loads(line)["stats"] for line in lines if '"stats"' in line]

    def most_pages(self, stage: str) -> int:
        """Of all that it told of so far."""
        return max(int(stats["kv_pages_used"]) for stats in self.stats(stage))

    def ask(self, url: str, prompt: list[int], *, tokens: int) -> "Streaming":
        return Streaming(client=self.client, url=url, prompt=prompt, tokens=tokens)

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()

    def pages_held(self) -> int:
        return sum(self.stats(stage)[-1]["kv_pages_used"] for stage in STAGES)

    def says(self, words: str) -> bool:
        """Whether these stand in the log of every stage."""
        return all(words in self.log(stage) for stage in STAGES)

    def close(self) -> None:
        self.client.close()
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.communicate()

    def _addresses(self, names: Iterator[str]) -> tuple[PeerAddress, ...]:
        return tuple(
            PeerAddress(
                name=name,
                endpoint=f"tcp://127.0.0.1:{self._ports[name]}",
                public_key=self._keys[name].public_key,
            )
            for name in names
        )

    def _start(self, name: str, program: str, *options: str) -> subprocess.Popen[bytes]:
        out, log = self._folder / f"{name}.out", self._folder / f"{name}.log"
        with out.open("wb") as told, log.open("wb") as errors:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "runtime", program, *options],
                stdin=subprocess.PIPE,
                stdout=told,
                stderr=errors,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        return self._processes[name]

    def _remember_plan(self, directory: Path, name: str) -> None:
        membership = Membership(
            name=name, cluster="two", credential="none", heartbeat_interval_s=60
        )
        DataDir(directory).save_identity(
            Identity(
                node_uuid=str(uuid.uuid4()), data_port=self._ports[name], membership=membership
            )
        )
        plan = ServingPlan(
            deployment_id=1,
            generation=1,
            model_name=MODEL,
            checkpoint=str(self._checkpoint),
            num_layers=SIZES.num_layers,
            partial_inference=False,
            placement=Placement(
                layers={name: LayerRange(first=a, end=b) for name, (a, b) in STAGES.items()}
            ),
            routing_weights={SOURCE: {"one": 1.0}, "one": {"two": 1.0}, "two": {SINK: 1.0}},
            workload=Workload(mean_prompt_tokens=32, mean_output_tokens=64),
            max_context_tokens=CONTEXT,
            peers=self._addresses(iter(STAGES)),
        )
        key_hash = hashlib.sha256(API_KEY.encode()).hexdigest()
        desired = CoordinatorDesired(generation=1, plan=plan, api_key_hashes=(key_hash,))
        PlanStore(directory / "plan.json").save(desired)


@contextmanager
def two_fronts(folder: Path) -> Iterator[TwoFronts]:
    """Ready to serve; everything ends with the block."""
    fronts = TwoFronts(folder)
    try:
        fronts.start()
        yield fronts
    finally:
        fronts.close()


@dataclass(slots=True, kw_only=True)
class Streaming:
    """An answer that comes in by a thread of its own; `error` says what ended it early."""

    client: httpx.Client
    url: str
    prompt: list[int]
    tokens: int
    token_ids: list[int] = field(default_factory=list)
    error: str = ""
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._ask, daemon=True)
        self.thread.start()

    def answer(self) -> list[int]:
        """Once it has ended. Raises AssertionError if it did not end well."""
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        assert not self.error, self.error
        return self.token_ids

    def _ask(self) -> None:
        body = {
            "model": MODEL,
            "prompt": self.prompt,
            "max_tokens": self.tokens,
            "temperature": 0,
            "stream": True,
            "return_token_ids": True,
        }
        url = f"{self.url}/v1/completions"
        try:
            with self.client.stream("POST", url, json=body) as reply:
                if reply.status_code != httpx.codes.OK:
                    self.error = f"{reply.status_code}: {reply.read()!r}"
                    return
                for line in reply.iter_lines():
                    if line.startswith("data: {"):
                        self._take(json.loads(line.removeprefix("data: ")))
        except httpx.TransportError as error:
            self.error = repr(error)

    def _take(self, event: dict[str, Any]) -> None:
        if "error" in event:
            self.error = str(event["error"])
        for choice in event.get("choices", ()):
            self.token_ids += choice.get("token_ids") or []


class RoundRobin(socketserver.ThreadingTCPServer):
    """What a load balancer does, and no more: each connection to the next that takes it.

    One that refuses connections is dropped for good.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, ports: list[int]) -> None:
        self._ports = list(ports)
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Relay)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def behind(self) -> int:
        return len(self._ports)

    def connect(self) -> socket.socket:
        with self._lock:
            while True:
                port = self._ports.pop(0)
                try:
                    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
                except ConnectionRefusedError:
                    continue
                self._ports.append(port)
                return connection


class _Relay(socketserver.BaseRequestHandler):
    server: RoundRobin

    def handle(self) -> None:
        with self.server.connect() as target:
            answering = threading.Thread(target=_copy, args=(target, self.request), daemon=True)
            answering.start()
            _copy(self.request, target)
            answering.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Until one of the two ends it."""
    with suppress(OSError):
        while part := source.recv(1 << 16):
            target.sendall(part)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextmanager
def round_robin(urls: list[str]) -> Iterator[RoundRobin]:
    """In front of these."""
    with RoundRobin([int(url.rpartition(":")[2]) for url in urls]) as front:
        thread = threading.Thread(target=front.serve_forever, daemon=True)
        thread.start()
        yield front
        front.shutdown()
        thread.join()
