"""A model that only a hub has is served, whatever ends while its weights are fetched.

A real site, coordinator and two agents on loopback. The hub stops in the middle of an answer until
it is told to go on, so that what is killed is killed in the middle of a fetch.
"""

import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from helixweb.demo.processes import Running, free_port
from helixweb.demo.scenario import answers_ok
from runtime.models.config import read_config
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from tests.e2e.control_plane import ControlPlane
from tests.runtime.hub_server import HubServer, hub_server
from tests.shaped_links.network import cabled, require_shaping
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.e2e, pytest.mark.long]

NAME = "org/tiny"
LAYERS = 3  # each of the nodes can hold them all
NODES = ("first", "second")
SIZES = TinySizes(
    num_layers=LAYERS, hidden_size=512, intermediate_size=2048, max_position_embeddings=8192
)
SLOW = "rate 32mbit burst 1mb latency 400ms"  # seconds for the weights
SMALL_DISK = "ulimit -f 1024"  # KiB of each file: fewer than a matrix has


class World:
    """A cluster of two nodes of which none has the model."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.person, self._folder = plane, plane.person, folder
        self.cluster = self.person.import_small_cluster("fetching", NODES, layers=LAYERS)
        self._model = self.person.give_checkpoint("tiny-llama", NAME)
        self.port = free_port()

    def start_coordinator(self) -> Running:
        return self._start("coordinator", "coordinator", f"--port={self.port}")

    def start_agent(self, name: str, *, before: str = "true") -> Running:
        """`before`: what the shell runs first."""
        return self._start("node", name, "--memory=1G", before=before)

    def _start(self, role: str, name: str, *options: str, before: str = "true") -> Running:
        program = "coordinator" if role == "coordinator" else "agent"
        command = [
            sys.executable, "-m", "runtime", program, f"--server={self.plane.url}",
            f"--name={name}", f"--data-dir={self.data_dir(name)}", *options,
        ]  # fmt: skip
        if not self.data_dir(name).exists():
            command.append(f"--token={self.person.token(self.cluster, role)}")
        shell = ["bash", "-c", f"{before}; exec {shlex.join(command)}"]
        return self.plane.processes.start(name, shell)

    def data_dir(self, name: str) -> Path:
        return self._folder / name

    def deploy(self) -> int:
        rows = {"nodes/": len(NODES), "coordinators/": 1}
        for collection, count in rows.items():
            until(
                lambda collection=collection, count=count: [
                    row["state"] for row in self.person.rows(collection, cluster=self.cluster)
                ] == ["online"] * count,
                "all are online",
            )  # fmt: skip
        return self.person.deploy_a_plan(self.cluster, self._model)

    def assignment(self, name: str) -> dict[str, Any]:
        """What the site says of a node's part in the deployment."""
        row = self.person.look(f"deployments/{self.person.deployments[-1]}/")
        found: dict[str, Any] = next(one for one in row["assignments"] if one["node_name"] == name)
        return found

    def await_phase(self, name: str, phase: str) -> dict[str, Any]:
        until(lambda: self.assignment(name)["phase"] == phase, f"{name} is {phase}")
        return self.assignment(name)

    def answers(self) -> bool:
        """True if the coordinator says that requests are served."""
        return answers_ok(f"http://127.0.0.1:{self.port}")

    def held_bytes(self, name: str) -> int:
        """Of the tensors that a node has whole."""
        files = self.data_dir(name).rglob("*.safetensors")
        return sum(file.stat().st_size for file in files)

    def no_half_file(self, original: Path) -> None:
        """Whatever has the name of a tensor's file ends with the bytes of that tensor."""
        whole = (original / "model.safetensors").read_bytes()
        files = [file for name in NODES for file in self.data_dir(name).rglob("*.safetensors")]
        for file in files:
            content = file.read_bytes()
            length = int.from_bytes(content[:8], "little")
            assert content[8 + length :] in whole, file


@pytest.fixture
def own_loopback() -> Iterator[None]:
    """What this test starts has a loopback interface of its own."""
    require_shaping()
    with cabled({"a": "10.99.0.1"}) as network, network.inside("a"):
        yield


@pytest.fixture
def original(tmp_path: Path) -> Path:
    folder = tmp_path / "original"
    make_tiny_checkpoint(folder, sizes=SIZES, seed=3)
    return folder


@pytest.fixture
def hub(original: Path) -> Iterator[HubServer]:
    with hub_server({NAME: original}) as serving:
        yield serving


@pytest.fixture
def world(tmp_path: Path, hub: HubServer) -> Iterator[World]:
    with ControlPlane.running(tmp_path, HF_ENDPOINT=hub.url) as plane, ExitStack() as stack:
        stack.callback(hub.answering.set)
        yield World(plane, tmp_path)


def test_a_fetch_outlives_its_site_and_a_full_disk_and_is_shared_later(
    world: World, hub: HubServer, original: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = read_config(original).weights_bytes(0, LAYERS)
    world.start_coordinator()
    world.start_agent("first")
    second = world.start_agent("second", before=SMALL_DISK)
    hub.waits_at = needed // 3
    world.deploy()
    until(lambda: not hub.answering.is_set(), "a fetch is under way")
    world.plane.kill("web")
    until(world.plane.is_up, "the site is back")
    world.no_half_file(original)
    hub.answering.set()

    told = world.await_phase("first", "ready")["fetch"]
    assert sum(told["fetched"].values()) == told["needed_bytes"]
    message = world.await_phase("second", "failed")["message"]
    assert "cannot be written" in message
    assert "free disk space" in message
    world.no_half_file(original)

    stop(second)
    shutil.rmtree(world.data_dir("second") / "weights")
    before = hub.sent_bytes
    world.start_agent("second")
    told_second = world.await_phase("second", "ready")["fetch"]
    assert told_second["fetched"] == {"peer first": told_second["needed_bytes"]}
    assert hub.sent_bytes - before < 0.05 * needed
    world.no_half_file(original)
    world.person.await_ready(world.person.deployments[-1])
    assert world.answers()
    with capsys.disabled():
        for name, fetch in (("first", told), ("second", told_second)):
            print(f"\n{name}: {fetch['needed_bytes']} bytes needed, {fetch['fetched']}")


def test_a_fetch_goes_on_when_its_source_peer_is_killed(
    own_loopback: None,
    world: World,
    hub: HubServer,
    original: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world.start_coordinator()
    first = world.start_agent("first")
    second = world.start_agent("second", before=SMALL_DISK)
    world.deploy()
    world.await_phase("first", "ready")
    world.await_phase("second", "failed")
    stop(second)
    shutil.rmtree(world.data_dir("second") / "weights")
    before = hub.sent_bytes

    loopback("add", *SLOW.split())
    world.start_agent("second")
    until(lambda: world.held_bytes("second") > 0, "a tensor has come from the peer")
    first.process.kill()
    loopback("del")
    from_hub = hub.sent_bytes - before
    world.no_half_file(original)
    told = world.await_phase("second", "ready")["fetch"]
    with capsys.disabled():
        print(f"\nsecond: {told['needed_bytes']} bytes needed, {told['fetched']}")
    assert told["fetched"].keys() == {"peer first", "hub"}
    assert sum(told["fetched"].values()) == told["needed_bytes"]
    assert from_hub < 0.05 * told["needed_bytes"], "it came from the peer before"
    world.no_half_file(original)
    until(world.answers, "the second node serves alone")


def loopback(action: str, *shape: str) -> None:
    """`add` or `del` a limit for what passes this namespace's loopback interface."""
    tbf = ["tbf", *shape] if shape else []
    subprocess.run(["tc", "qdisc", action, "dev", "lo", "root", *tbf], check=True)


def stop(agent: Running) -> None:
    agent.process.send_signal(signal.SIGINT)
    agent.process.wait(PATIENCE_S)
