"""The stage as its agent sees it: a process with a pipe, and data frames over loopback ZeroMQ."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from emulated_cluster import MODEL, emulation_of
from free_port import free_port
from safetensors.torch import load_file, save_file

from runtime.engine.event_writer import EventWriter
from runtime.engine.main import StageStart, run_stage
from runtime.models.linear import cpu_products
from runtime.models.reference import greedy_tokens
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.protocol.control import PeerAddress, StageAssignment
from runtime.protocol.data import DType, Entry, Flag, Hop, Kind, Message, Route, Sampling
from runtime.protocol.engines import Engine, EngineSettings
from runtime.protocol.stage_pipe import (
    AddOrder,
    FailedEvent,
    LoadingEvent,
    ReadyEvent,
    RetiredEvent,
    StageEvent,
    StageLaunch,
    StatsEvent,
    parse_event,
)
from runtime.transport.zmq_sockets import KeyPair
from runtime.transport.zmq_transport import ZmqTransport

GENERATION = 3
NEXT = GENERATION + 1
ENDS_WITHIN_S = 90  # a bound on hanging, not a measurement
# with the Python of vLLM's environment, stages run on vLLM there (make test-vllm)
VLLM_PYTHON = os.environ.get("HELIX_TEST_VLLM_PYTHON", "")
ENGINE = EngineSettings(engine=Engine.VLLM if VLLM_PYTHON else Engine.AUTO, python=VLLM_PYTHON)
LIMITS = {
    "page_tokens": 16 if VLLM_PYTHON else 8,
    "max_batch_tokens": 16,
    "max_context_tokens": 128,
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    sizes = TinySizes(
        num_layers=4,
        hidden_size=32,
        head_size=32 if VLLM_PYTHON else None,
        intermediate_size=64,
        vocab_size=300,
        max_position_embeddings=128,
    )
    make_tiny_checkpoint(directory, sizes=sizes, seed=9)
    return directory


@dataclass
class StageProcess:
    process: subprocess.Popen[bytes]
    seen: list[StageEvent]

    def until(self, wanted: type[StageEvent]) -> StageEvent:
        for line in self.process.stdout:
            self.seen.append(parse_event(line))
            if isinstance(self.seen[-1], wanted):
                return self.seen[-1]
        raise AssertionError(f"no {wanted.__name__}; {self.seen}; {self.process.wait()}")

    def stop(self) -> int:
        if not self.process.stdin.closed:
            self.process.stdin.close()
        for line in self.process.stdout:
            self.seen.append(parse_event(line))
        return self.process.wait(ENDS_WITHIN_S)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[bytes], StageProcess]]:
    started: list[subprocess.Popen[bytes]] = []

    def start_one(line: bytes, *options: str) -> StageProcess:
        log = (tmp_path / f"stage-{len(started)}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", "runtime", "stage", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        log.close()
        started.append(process)
        process.stdin.write(line)
        process.stdin.flush()
        return StageProcess(process, [])

    yield start_one
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait(ENDS_WITHIN_S)
        process.stdin.close()
        process.stdout.close()


def free_endpoint() -> str:
    return f"tcp://127.0.0.1:{free_port()}"


class Members:
    """Keys and addresses of a coordinator and some nodes."""

    def __init__(self, directory: Path, *names: str) -> None:
        self.directory = directory
        self.keys = {
            name: KeyPair.load_or_create(directory / f"{name}.key")
            for name in ("coordinator", *names)
        }
        self.peers = tuple(
            PeerAddress(name=name, endpoint=free_endpoint(), public_key=keys.public_key)
            for name, keys in self.keys.items()
        )

    def endpoint(self, name: str) -> str:
        return next(peer.endpoint for peer in self.peers if peer.name == name)

    def launch(
        self, checkpoint: Path, name: str, first: int, end: int, **changes: object
    ) -> StageLaunch:
        return StageLaunch(
            assignment=StageAssignment(
                deployment_id=1,
                generation=GENERATION,
                model_name="tiny",
                checkpoint=str(checkpoint),
                first=first,
                end=end,
                num_layers=4,
                peers=self.peers,
                **LIMITS,
            ),
            name=name,
            bind=self.endpoint(name),
            secret_key_file=str(self.directory / f"{name}.key"),
            public_key=self.keys[name].public_key,
            engine=ENGINE,
            memory_budget_bytes=8_000_000,
        ).model_copy(update=changes)


@pytest.mark.processes
def test_two_processes_answer_as_the_whole_model_and_free_their_pages(
    checkpoint: Path, tmp_path: Path, start: Callable[[bytes], StageProcess]
) -> None:
    members = Members(tmp_path, "a", "b")
    stages = [
        start(members.launch(checkpoint, "a", 0, 3).to_line()),
        start(members.launch(checkpoint, "b", 1, 4, relative_speed=0.5).to_line()),
    ]
    coordinator = ZmqTransport(
        name="coordinator",
        bind=members.endpoint("coordinator"),
        keys=members.keys["coordinator"],
        peers=members.peers,
    )
    try:
        for stage in stages:
            stage.until(ReadyEvent)
            assert isinstance(stage.seen[0], LoadingEvent)
        prompt = list(range(10, 50))
        coordinator.send("a", prompt_message(prompt))
        tokens: list[int] = []
        for message in heard(coordinator):
            if message.kind == Kind.SAMPLED:
                tokens.append(int(np.frombuffer(message.payload, dtype="<i4")[0]))
                if Flag.FINISHED in message.entries[0].flags:
                    break
        assert tokens == greedy_tokens(checkpoint, prompt_token_ids=prompt, max_tokens=12)
        release = Entry(request=1, epoch=1, position=0, n_tokens=0, hop=0)
        for node in ("a", "b"):
            coordinator.send(
                node, Message(kind=Kind.RELEASE, generation=GENERATION, entries=(release,))
            )
        for stage in stages:
            while stage.until(StatsEvent).stats.sequences or not stage.seen[-1].stats.steps_total:
                pass
            stats = stage.seen[-1].stats
            assert (stats.prompt_tokens_total, stats.decode_tokens_total) == (40, 11)
            assert stats.kv_pages_used == 0
            assert stats.links["coordinator"].urgent_messages_total > 0
        assert stages[0].seen[-1].stats.links["b"].bulk_bytes_total > 40  # the prompt's rows
        assert [stage.stop() for stage in stages] == [0, 0]
    finally:
        coordinator.close()


@pytest.mark.processes
def test_a_process_serves_the_next_generation_beside_until_the_one_before_is_retired(
    checkpoint: Path, tmp_path: Path, start: Callable[[bytes], StageProcess]
) -> None:
    members = Members(tmp_path, "a", "b")
    launch = members.launch(checkpoint, "a", 0, 3)
    stage = start(launch.to_line())
    coordinator = ZmqTransport(
        name="coordinator",
        bind=members.endpoint("coordinator"),
        keys=members.keys["coordinator"],
        peers=members.peers,
    )
    try:
        stage.until(ReadyEvent)
        following = launch.assignment.model_copy(update={"generation": NEXT, "end": 4})
        stage.process.stdin.write(b"no order\n" + AddOrder(assignment=following).to_line())
        stage.process.stdin.flush()
        ready = stage.until(ReadyEvent)
        assert ready.generation == NEXT
        assert {event.generation for event in stage.seen if isinstance(event, LoadingEvent)} == {
            GENERATION,
            NEXT,
        }
        prompt = list(range(10, 50))
        hops = (Hop(node="a", first=0, end=4),)
        coordinator.send("a", prompt_message(prompt, hops=hops, generation=NEXT))
        tokens, served = [], set()
        for message in heard(coordinator):
            if message.kind == Kind.STATUS:
                served.add(message.generation)
            if message.kind == Kind.SAMPLED:
                assert message.generation == NEXT
                tokens.append(int(np.frombuffer(message.payload, dtype="<i4")[0]))
                if Flag.FINISHED in message.entries[0].flags:
                    break
        assert served == {GENERATION, NEXT}
        assert tokens == greedy_tokens(checkpoint, prompt_token_ids=prompt, max_tokens=12)
        coordinator.send("a", Message(kind=Kind.RETIRE, generation=GENERATION))
        assert stage.until(RetiredEvent).generation == GENERATION
        assert stage.stop() == 0
    finally:
        coordinator.close()


def prompt_message(
    prompt: list[int],
    *,
    hops: tuple[Hop, ...] = (Hop(node="a", first=0, end=3), Hop(node="b", first=3, end=4)),
    generation: int = GENERATION,
) -> Message:
    route = Route(
        hops=hops,
        sampling=Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=12),
        prompt_tokens=len(prompt),
    )
    entry = Entry(
        request=1,
        epoch=1,
        position=0,
        n_tokens=len(prompt),
        hop=0,
        flags=Flag.PROMPT_END,
        route=route,
    )
    return Message(
        kind=Kind.PROMPT,
        generation=generation,
        entries=(entry,),
        dtype=DType.INT32,
        payload=np.array(prompt, dtype="<i4").tobytes(),
    )


def heard(coordinator: ZmqTransport) -> Iterator[Message]:
    """What the coordinator hears, until nothing has come for long; stages speak each second."""
    while received := coordinator.receive(timeout_s=ENDS_WITHIN_S):
        for one in received:
            assert one.message.kind != Kind.NACK, one
            yield one.message


@pytest.mark.processes
def test_sigterm_stops_a_stage_cleanly(
    checkpoint: Path, tmp_path: Path, start: Callable[[bytes], StageProcess]
) -> None:
    members = Members(tmp_path, "a")
    stage = start(members.launch(checkpoint, "a", 0, 4).to_line())
    stage.until(ReadyEvent)
    stage.process.send_signal(signal.SIGTERM)
    assert stage.process.wait(ENDS_WITHIN_S) == 0


@pytest.mark.processes
def test_a_stage_told_to_end_leaves_when_its_coordinator_lets_it_go(
    checkpoint: Path, tmp_path: Path, start: Callable[[bytes], StageProcess]
) -> None:
    members = Members(tmp_path, "a")
    stage = start(members.launch(checkpoint, "a", 0, 4, leave_within_s=3600.0).to_line())
    coordinator = ZmqTransport(
        name="coordinator",
        bind=members.endpoint("coordinator"),
        keys=members.keys["coordinator"],
        peers=members.peers,
    )
    try:
        stage.until(ReadyEvent)
        hops = (Hop(node="a", first=0, end=4),)
        coordinator.send("a", prompt_message(list(range(10, 50)), hops=hops))
        for message in heard(coordinator):
            if message.kind == Kind.SAMPLED and Flag.FINISHED in message.entries[0].flags:
                break  # it holds the request's pages until that is released
        stage.process.send_signal(signal.SIGTERM)
        for message in heard(coordinator):
            if message.kind == Kind.LEAVING:
                break
        assert message.generation == GENERATION
        assert stage.process.poll() is None
        coordinator.send("a", Message(kind=Kind.RETIRE, generation=GENERATION))
        assert stage.process.wait(ENDS_WITHIN_S) == 0
    finally:
        coordinator.close()


def failure(line: bytes) -> str:
    """What the program says of a launch line it cannot run."""
    said = io.BytesIO()
    stop = threading.Event()
    events = EventWriter(said, on_broken=stop.set)
    status = run_stage(line, events, stop, StageStart())
    events.close()
    last = parse_event(said.getvalue().splitlines()[-1])
    assert status == 1
    assert isinstance(last, FailedEvent)
    assert "\n" not in last.message
    return last.message


def test_what_a_stage_cannot_run_is_said_in_one_line_with_the_remedy(
    checkpoint: Path, tmp_path: Path
) -> None:
    members = Members(tmp_path, "a", "b")
    lacking = tmp_path / "lacking"
    lacking.mkdir()
    for file in checkpoint.iterdir():
        (lacking / file.name).write_bytes(file.read_bytes())
    tensors = load_file(lacking / "model.safetensors")
    del tensors["model.layers.1.mlp.down_proj.weight"]
    save_file(tensors, lacking / "model.safetensors")
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    port = taken.getsockname()[1]
    good = members.launch(checkpoint, "a", 0, 4)
    shorter = good.assignment.model_copy(update={"num_layers": 6})
    longer = good.assignment.model_copy(update={"max_context_tokens": 999})
    cases = [
        (members.launch(lacking, "a", 0, 4), "'model.layers.1.mlp.down_proj.weight' is missing"),
        (members.launch(tmp_path / "nowhere", "a", 0, 4), "does not exist"),
        (good.model_copy(update={"memory_budget_bytes": 1000}), "bytes are needed"),
        (good.model_copy(update={"bind": f"tcp://127.0.0.1:{port}"}), f"127.0.0.1:{port}"),
        (good.model_copy(update={"public_key": members.keys["b"].public_key}), "restart the agent"),
        (good.model_copy(update={"assignment": shorter}), "plan again for this checkpoint"),
        (good.model_copy(update={"assignment": longer}), "deploy with a shorter context"),
    ]
    for launch, expected in cases:
        assert expected in failure(launch.to_line())
    taken.close()


def test_an_unknown_choice_of_products_is_refused_with_the_choices(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = Members(tmp_path, "a").launch(checkpoint, "a", 0, 4)
    monkeypatch.setenv("HELIX_CPU_PRODUCTS", "quick")
    cpu_products.cache_clear()
    try:
        said = failure(launch.to_line())
    finally:
        cpu_products.cache_clear()
    assert "HELIX_CPU_PRODUCTS is 'quick'" in said
    assert "'reproducible' or 'fastest'" in said


@pytest.mark.processes
def test_a_failed_stage_exits_1(
    checkpoint: Path, tmp_path: Path, start: Callable[[bytes], StageProcess]
) -> None:
    launch = Members(tmp_path, "a").launch(checkpoint, "a", 0, 4, memory_budget_bytes=1000)
    stage = start(launch.to_line())
    assert "bytes are needed" in stage.until(FailedEvent).message
    assert stage.process.wait(ENDS_WITHIN_S) == 1


def test_a_launch_line_that_is_no_launch_is_refused() -> None:
    assert "launch line" in failure(json.dumps({"name": "a"}).encode() + b"\n")


@pytest.mark.processes
def test_a_stage_told_to_stop_before_its_launch_exits_quietly(
    start: Callable[[bytes], StageProcess],
) -> None:
    stage = start(b"")
    assert stage.stop() == 0
    assert stage.seen == []


@pytest.mark.processes
def test_emulated_processes_answer_without_a_checkpoint_and_say_so(
    tmp_path: Path, start: Callable[..., StageProcess]
) -> None:
    members = Members(tmp_path, "a", "b")
    links = {"b": {"bandwidth_bytes_per_s": 1e6, "latency_s": 0.001}}
    emulation = emulation_of(links=links, time_scale=0.01).model_copy(
        update={"model": replace(MODEL, num_layers=4)}
    )
    path = tmp_path / "node.json"
    path.write_text(emulation.model_dump_json())
    nothing = tmp_path / "nothing"
    stages = [
        start(members.launch(nothing, "a", 0, 3).to_line(), "--emulate", str(path)),
        start(members.launch(nothing, "b", 2, 4).to_line(), "--emulate", str(path)),
    ]
    coordinator = ZmqTransport(
        name="coordinator",
        bind=members.endpoint("coordinator"),
        keys=members.keys["coordinator"],
        peers=members.peers,
    )
    try:
        for stage in stages:
            assert stage.until(ReadyEvent).stats.emulated
        coordinator.send("a", prompt_message(list(range(10, 50))))
        tokens = 0
        for message in heard(coordinator):
            if message.kind == Kind.SAMPLED:
                tokens += 1
                if Flag.FINISHED in message.entries[0].flags:
                    break
        assert tokens == 12
        assert [stage.stop() for stage in stages] == [0, 0]
    finally:
        coordinator.close()


@pytest.mark.processes
def test_a_stage_that_may_be_emulated_loads_no_torch() -> None:
    code = "import sys, runtime.engine.main; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert done.returncode == 0


@pytest.mark.processes
def test_an_emulated_node_is_refused_another_model(
    tmp_path: Path, start: Callable[..., StageProcess]
) -> None:
    members = Members(tmp_path, "a")
    path = tmp_path / "node.json"
    path.write_text(emulation_of().model_dump_json())
    stage = start(members.launch(tmp_path, "a", 0, 2).to_line(), "--emulate", str(path))
    assert "the emulated model has 8" in stage.until(FailedEvent).message
    assert stage.stop() == 1
