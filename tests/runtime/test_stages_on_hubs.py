"""Stages and agents serve layers of a model that is on a hub, and agents give them to others."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from fake_web import PATIENCE_S, TOKEN, FakeWeb, wait_until
from hub_server import HubServer, hub_server

from runtime.engine.helix_engine import HelixEngine
from runtime.engine.opening import open_stage
from runtime.models.config import read_config
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.protocol.control import DesiredState, PeerAddress, StageAssignment
from runtime.protocol.phases import Phase
from runtime.protocol.stage_pipe import StageLaunch
from runtime.protocol.weight_access import WeightAccess, WeightPeers
from runtime.protocol.weight_fetch import WeightFetch
from tests.programs import started

NAME = "org/small"
ASSIGNMENT = StageAssignment(
    deployment_id=1,
    generation=1,
    model_name="m",
    checkpoint=NAME,
    first=1,
    end=2,
    num_layers=4,
    max_context_tokens=32,
    peers=(),
)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    sizes = TinySizes(
        num_layers=4, hidden_size=128, intermediate_size=512, max_position_embeddings=64
    )
    make_tiny_checkpoint(tmp_path / "small", sizes=sizes, seed=3)
    return tmp_path / "small"


@pytest.fixture
def hub(checkpoint: Path) -> Iterator[HubServer]:
    with hub_server({NAME: checkpoint}) as serving:
        yield serving


def test_a_stage_opens_layers_of_a_model_on_a_hub_with_one_progress_for_all(
    tmp_path: Path, hub: HubServer, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    seen: list[tuple[int, int]] = []
    launch = StageLaunch(
        assignment=ASSIGNMENT,
        name="n",
        bind="tcp://127.0.0.1:1",
        secret_key_file="x",
        public_key="k" * 40,
        memory_budget_bytes=1 << 28,
        weights=WeightAccess(directory=str(tmp_path / "store")),
    )
    opened = open_stage(
        launch,
        HelixEngine,
        progress=lambda done, total: seen.append((done, total)),
        on_lost=pytest.fail,
    )
    layer_bytes = read_config(checkpoint).weights_bytes(1, 2)
    assert seen[-1] == (2 * layer_bytes, 2 * layer_bytes)  # fetched, then read
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert opened.holdings is not None
    before = hub.sent_bytes
    opened.holdings.load([range(2, 4)], lambda *_: None)()
    assert set(opened.holdings.held) == {1, 2, 3}
    own_bytes = read_config(checkpoint).weights_bytes(2, 4)
    assert hub.sent_bytes - before < 1.02 * own_bytes


@pytest.mark.processes
def test_an_agent_serves_layers_of_a_hub_and_gives_them_to_another(
    tmp_path: Path, hub: HubServer, checkpoint: Path
) -> None:
    with (
        FakeWeb() as web,
        agent_of(web, tmp_path / "first", hub) as first,
        FakeWeb() as other_web,
        agent_of(other_web, tmp_path / "second", hub) as second,
    ):
        wait_until(lambda: web.last and other_web.last, what="both to join")
        peer = ASSIGNMENT.model_copy(update={"peers": (address(other_web, "second"),)})
        web.desired = DesiredState(generation=1, assignment=peer)
        fetched = fetched_by(web, first)
        assert fetched.fetched.keys() == {"hub"}
        port = web.last and web.last.weights and web.last.weights.port
        place = {"endpoint": f"tcp://127.0.0.1:{port}"}
        peers = (address(web, "first").model_copy(update=place),)
        other_web.weight_peers = WeightPeers(peers=peers)
        other_web.desired = DesiredState(generation=1, assignment=ASSIGNMENT)
        assert fetched_by(other_web, second).fetched.keys() == {"peer first"}
        for agent in (first, second):
            agent.send_signal(signal.SIGINT)
            agent.wait(PATIENCE_S)
    stores = [tmp_path / name / "weights" for name in ("first", "second")]
    held, copied = [
        {file.name: file.read_bytes() for file in store.rglob("*.safetensors")} for store in stores
    ]
    assert held == copied
    assert held
    assert all(name.startswith("model.layers.1.") for name in held)


def agent_of(
    web: FakeWeb, data_dir: Path, hub: HubServer
) -> AbstractContextManager["subprocess.Popen[bytes]"]:
    command = [
        sys.executable, "-m", "runtime", "agent", "--token", TOKEN, "--name", data_dir.name,
        "--data-dir", str(data_dir), "--memory", "256M", "--weights-quota", "1G",
        "--server", web.url,
    ]  # fmt: skip
    return started(command, env={**os.environ, "HF_ENDPOINT": hub.url})


def address(web: FakeWeb, name: str) -> PeerAddress:
    """Where the process that joined at `web` receives data frames."""
    told = web.registrations[0]
    return PeerAddress(name=name, endpoint=told.data_endpoint, public_key=told.data_public_key)


def fetched_by(web: FakeWeb, agent: "subprocess.Popen[bytes]") -> WeightFetch:
    """What the agent says of its fetch once it serves."""
    wait_until(
        lambda: agent.poll() is not None or (web.last and web.last.phase is Phase.READY),
        what="a stage that serves",
    )
    assert web.last is not None
    assert web.last.weights is not None
    fetch = web.last.weights.fetch
    assert fetch is not None
    assert fetch.fetched_bytes == fetch.needed_bytes > 0
    return fetch
