"""A real coordinator and a chain of real stage processes without a model, to be struck one by one.

Stages write their log to a pipe that is emptied here. Left full, it stops the thread that next
writes a line, while the rest of the process goes on: a hang as a lock or a driver makes it.
"""

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import httpx
import psutil

from planner.domain.cluster import COORDINATOR, SINK, SOURCE
from planner.domain.layer_times import LayerTimes
from planner.domain.model_spec import ModelSpec
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Workload
from planner.domain.profile import ComputeProfile
from runtime.coordinator.plan_follower import Stored
from runtime.membership.identity import PLAN_FILE, DataDir, Identity, Membership
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.protocol.control import CoordinatorDesired, PeerAddress, ServingPlan, StageAssignment
from runtime.protocol.data import Entry, Kind, Message
from runtime.protocol.emulation import Emulation
from runtime.protocol.stage_pipe import StageLaunch
from runtime.transport.zmq_sockets import KeyPair
from runtime.transport.zmq_transport import ZmqTransport
from tests.e2e.cut_cable import Cabling

API_KEY = "hlxk_recovery"
MODEL = "emulated"
LAYERS = {"first": (0, 3), "middle": (3, 6), "last": (6, 8)}
_MEDDLER = "meddler"  # a peer that makes stages write to their log
_SIZES = TinySizes(
    num_layers=8,
    hidden_size=32,
    intermediate_size=64,
    vocab_size=300,
    max_position_embeddings=256,
)
_STARTS_WITHIN_S = 120.0


class Stage:
    """One process after another, by the same launch line."""

    def __init__(self, launch: StageLaunch, folder: Path) -> None:
        self._launch = launch
        self._emulation = folder / "emulation.json"
        self._pipe = folder / f"{launch.name}.pipe"
        os.mkfifo(self._pipe)
        self._reading = os.open(self._pipe, os.O_RDONLY | os.O_NONBLOCK)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._pipe.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "runtime", "stage", f"--emulate={self._emulation}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        if self._process.stdin is None:
            raise RuntimeError("the stage was started without a pipe to its stdin")
        self._process.stdin.write(self._launch.to_line())
        self._process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise RuntimeError(f"{self._launch.name} was not started")
        self._process.send_signal(number)

    def empty_pipe(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._reading, 65536):
                pass

    def fill_pipe(self) -> None:
        writing = os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK)
        with contextlib.suppress(BlockingIOError):
            for size in (65536, 1):
                with contextlib.suppress(BlockingIOError):
                    while True:
                        os.write(writing, bytes(size))
        os.close(writing)

    @property
    def pid(self) -> int:
        """Of its process. Raises RuntimeError before it was started."""
        if self._process is None:
            raise RuntimeError(f"{self._launch.name} was not started")
        return self._process.pid

    def forget(self) -> None:
        """Wait for the end of the process."""
        if self._process is not None:
            self._process.wait(60)
            if self._process.stdin is not None:
                self._process.stdin.close()


class Chain:
    """Made by `running_chain`; `url` is where clients ask."""

    def __init__(self, folder: Path, cabling: Cabling) -> None:
        self.cabling = cabling
        self.stages: dict[str, Stage] = {}
        self._folder = folder
        self._ports = {name: _free_port() for name in (COORDINATOR, _MEDDLER, "http", *LAYERS)}
        self._keys = {
            name: KeyPair.load_or_create(folder / name / "curve.key")
            for name in (COORDINATOR, _MEDDLER, *LAYERS)
        }
        self.url = f"http://127.0.0.1:{self._ports['http']}"
        self._lock = threading.Lock()  # of what hangs, and while its pipe is filled or emptied
        self._hangs: set[str] = set()
        self._ended = threading.Event()
        self._reader = threading.Thread(target=self._empty_pipes, name="logs")
        self._meddler = ZmqTransport(
            name=_MEDDLER,
            bind=f"tcp://127.0.0.1:{self._ports[_MEDDLER]}",
            keys=self._keys[_MEDDLER],
            peers=self._peers(),
        )
        self._coordinator: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """The coordinator's."""
        return self._folder / "coordinator.log"

    def resident_bytes(self) -> dict[str, int]:
        """What each of its processes holds."""
        pids = {name: stage.pid for name, stage in self.stages.items()}
        if self._coordinator is not None:
            pids[COORDINATOR] = self._coordinator.pid
        return {name: psutil.Process(pid).memory_info().rss for name, pid in pids.items()}

    def hang(self, name: str) -> None:
        """The next line that its own thread logs is its last; and it logs one at once."""
        with self._lock:
            self._hangs.add(name)
            self.stages[name].fill_pipe()
        entry = Entry(request=1, epoch=0, position=0, n_tokens=0, hop=0)
        self._meddler.send(name, Message(kind=Kind.NACK, generation=1, entries=(entry,)))

    def go_on(self, name: str) -> None:
        with self._lock:
            self._hangs.discard(name)

    def is_whole(self) -> bool:
        """Whether all stages are up, as the coordinator sees it."""
        try:
            state = httpx.get(f"{self.url}/health", timeout=5).json()
        except httpx.TransportError:
            return False
        return state["status"] == "ok" and not state["silent_nodes"]

    def start(self) -> None:
        checkpoint = self._folder / "checkpoint"
        make_tiny_checkpoint(checkpoint, sizes=_SIZES, seed=5)
        (self._folder / "emulation.json").write_text(_emulation().model_dump_json())
        self._reader.start()
        for name, (first, end) in LAYERS.items():
            launch = StageLaunch(
                assignment=StageAssignment(
                    deployment_id=1,
                    generation=1,
                    model_name=MODEL,
                    checkpoint=str(checkpoint),
                    first=first,
                    end=end,
                    num_layers=_SIZES.num_layers,
                    max_context_tokens=_SIZES.max_position_embeddings,
                    peers=self._peers(),
                ),
                name=name,
                bind=f"tcp://127.0.0.1:{self._ports[name]}",
                secret_key_file=str(self._folder / name / "curve.key"),
                public_key=self._keys[name].public_key,
                memory_budget_bytes=1,
            )
            self.stages[name] = Stage(launch, self._folder)
            self.stages[name].start()
        self._write_coordinator(checkpoint)
        with self.log.open("wb") as errors:
            self._coordinator = subprocess.Popen(
                [
                    *(sys.executable, "-m", "runtime", "coordinator"),
                    "--server=http://127.0.0.1:9",  # no site is there: it goes by what it has
                    f"--data-dir={self._folder / COORDINATOR}",
                    f"--port={self._ports['http']}",
                ],
                stderr=errors,
            )
        await_that(self.is_whole, "all stages are up")

    def close(self) -> None:
        for name in LAYERS:
            self.go_on(name)
        for stage in self.stages.values():
            with contextlib.suppress(ProcessLookupError):
                stage.signal(signal.SIGCONT)
                stage.signal(signal.SIGTERM)
        if self._coordinator is not None:
            self._coordinator.terminate()
            self._coordinator.wait(60)
        for stage in self.stages.values():
            stage.forget()
        self._ended.set()
        if self._reader.is_alive():
            self._reader.join()
        self._meddler.close()

    def _peers(self, *, of_coordinator: bool = False) -> tuple[PeerAddress, ...]:
        """The coordinator reaches each stage over a cable that can be cut."""
        names = [name for name in self._keys if not (of_coordinator and name not in LAYERS)]
        ports = {
            name: self.cabling.lay(COORDINATOR, name, port=self._ports[name])
            if of_coordinator
            else self._ports[name]
            for name in names
        }
        return tuple(
            PeerAddress(
                name=name,
                endpoint=f"tcp://127.0.0.1:{ports[name]}",
                public_key=self._keys[name].public_key,
            )
            for name in names
        )

    def _write_coordinator(self, checkpoint: Path) -> None:
        plan = ServingPlan(
            deployment_id=1,
            generation=1,
            model_name=MODEL,
            checkpoint=str(checkpoint),
            num_layers=_SIZES.num_layers,
            partial_inference=False,
            placement=Placement(
                layers={name: LayerRange(first=a, end=b) for name, (a, b) in LAYERS.items()}
            ),
            routing_weights={one: {other: 1.0} for one, other in pairwise((SOURCE, *LAYERS, SINK))},
            workload=Workload(mean_prompt_tokens=20, mean_output_tokens=100),
            max_context_tokens=_SIZES.max_position_embeddings,
            emulated=True,
            peers=self._peers(of_coordinator=True),
        )
        directory = self._folder / COORDINATOR
        DataDir(directory).save_identity(
            Identity(
                node_uuid=str(uuid.uuid4()),
                data_port=self._ports[COORDINATOR],
                membership=Membership(
                    name=COORDINATOR, cluster="recovery", credential="none", heartbeat_interval_s=60
                ),
            )
        )
        hashed = hashlib.sha256(API_KEY.encode()).hexdigest()
        desired = CoordinatorDesired(generation=1, plan=plan, api_key_hashes=(hashed,))
        DataDir(directory).save_wanted(PLAN_FILE, Stored.of(desired))

    def _empty_pipes(self) -> None:
        while not self._ended.wait(0.02):
            with self._lock:
                for name, stage in self.stages.items():
                    if name not in self._hangs:
                        stage.empty_pipe()


@contextmanager
def running_chain(folder: Path) -> Iterator[Chain]:
    """Ready to serve; everything ends with the block."""
    with Cabling().relaying() as cabling:
        chain = Chain(folder, cabling)
        try:
            chain.start()
            yield chain
        finally:
            chain.close()


def await_that(condition: Callable[[], bool], what: str) -> None:
    """Raises RuntimeError when it does not come to be."""
    deadline_s = time.monotonic() + _STARTS_WITHIN_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"not within {_STARTS_WITHIN_S:g} s: {what}")
        time.sleep(0.05)


def _emulation() -> Emulation:
    """Steps of about 10 ms."""
    layers = _SIZES.num_layers
    return Emulation(
        profile=ComputeProfile(
            name="emulated",
            gpu="emulated",
            vram_bytes=1e9,
            max_layers=layers,
            tokens_per_s=(1000.0,) * layers,
            kv_capacity_token_layers=(20_000.0,) * layers,
            layer_times=LayerTimes(
                prompt=((10, 0.003), (200, 0.01)), decode=((1, 0.003), (8, 0.005))
            ),
        ),
        model=ModelSpec(
            name=MODEL,
            num_layers=layers,
            activation_bytes_per_token=64.0,
            token_bytes=4.0,
            bytes_per_layer=1e6,
        ),
        vocab_size=_SIZES.vocab_size,
    )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
