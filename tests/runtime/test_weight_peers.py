"""A node takes the layers that another node of its deployment has from there."""

import resource
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from free_port import free_port
from hub_server import COMMIT, HubServer, hub_server

from runtime.agent.weight_server import WeightServer
from runtime.checkpoints import fetching
from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.fetching import fetch_if_elsewhere
from runtime.checkpoints.weight_store import WeightStore
from runtime.engine import weight_peers
from runtime.engine.weight_peers import peers_of
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.protocol.control import PeerAddress, StageAssignment
from runtime.protocol.data_security import DataSecurity
from runtime.protocol.weight_access import WeightAccess, WeightPeers
from runtime.protocol.weight_fetch import WeightFetch
from runtime.transport.zmq_sockets import KeyPair

REPOSITORY = "org/small"
NAME = f"{REPOSITORY}@{COMMIT}"
LAYERS = 2


@dataclass
class Node:
    """One node: a store, a key, and what it was told of its last fetch."""

    name: str
    folder: Path
    hub: HubServer
    security: DataSecurity = DataSecurity.CURVE
    port: int = field(default_factory=free_port)
    told: list[WeightFetch] = field(default_factory=list)
    on_told: Callable[[WeightFetch], None] = lambda _: None

    def __post_init__(self) -> None:
        self.keys = KeyPair.load_or_create(self.folder / "key")
        self.store = WeightStore(path=self.folder / "weights")

    @property
    def address(self) -> PeerAddress:
        return PeerAddress(
            name=self.name,
            endpoint=f"tcp://127.0.0.1:{self.port}",
            public_key=self.keys.public_key,
        )

    def fetch(self, layer: int, checkpoint: str = NAME) -> Path:
        """The tensors of a layer, by way of the peers that the site names."""
        access = WeightAccess(
            directory=str(self.store.path),
            site=self.hub.url,
            credential=self.name,
            secret_key_file=str(self.folder / "key"),
            security=self.security,
        )
        self.told.clear()
        fetched = fetch_if_elsewhere(checkpoint, access, peers=peers_of(access), tell=self._hear)
        assert fetched is not None
        wanted = [name for name in fetched.names() if f".layers.{layer}." in name]
        fetched.fetch(wanted, lambda *_: None)
        return fetched.folder

    def _hear(self, told: WeightFetch) -> None:
        self.told.append(told)
        self.on_told(told)

    def files(self) -> dict[str, bytes]:
        return {
            file.name: file.read_bytes()
            for file in self.store.path.rglob("*.safetensors*")
            if "index.json" not in file.name and not file.name.endswith(".header")
        }

    @contextmanager
    def serving(self, *peers: "Node", checkpoint: str = NAME) -> Iterator[None]:
        """While inside, the agent of this node serves its store to `peers`."""
        assignment = StageAssignment(
            deployment_id=1, generation=1, model_name="m", checkpoint=checkpoint, first=0, end=1,
            num_layers=LAYERS, max_context_tokens=32, peers=tuple(peer.address for peer in peers),
        )  # fmt: skip
        self.hub.peers = WeightPeers(peers=(*self.hub.peers.peers, self.address))
        server = WeightServer(
            host="127.0.0.1",
            port=self.port,
            keys=self.keys,
            security=self.security,
            store=self.store,
        )
        server.serve(assignment)
        self.kill = cache(server.close)
        try:
            yield
        finally:
            self.kill()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    folder = tmp_path / "original"
    make_tiny_checkpoint(folder, sizes=TinySizes(num_layers=LAYERS, hidden_size=64), seed=3)
    # a busy machine must not look like a lost peer
    monkeypatch.setattr(weight_peers, "_OFFER_WITHIN_S", 30.0)
    monkeypatch.setattr(weight_peers, "_SILENT_S", 30.0)
    with hub_server({REPOSITORY: folder}) as serving:
        monkeypatch.setenv("HF_ENDPOINT", serving.url)
        yield serving


@pytest.fixture
def first(tmp_path: Path, hub: HubServer) -> Node:
    node = Node("first", tmp_path / "first", hub)
    node.fetch(0)
    return node


@pytest.fixture
def second(tmp_path: Path, hub: HubServer) -> Node:
    return Node("second", tmp_path / "second", hub)


@pytest.mark.parametrize("security", DataSecurity)
def test_a_second_node_takes_its_layer_from_the_first(
    first: Node, second: Node, hub: HubServer, security: DataSecurity
) -> None:
    first.security = second.security = security
    assert first.told[-1].fetched == {"hub": first.told[-1].needed_bytes}
    with first.serving(second):
        before = len(hub.asked)
        second.fetch(0)
        ranges = [told for file, told in hub.asked[before:] if file == "model.safetensors"]
        ends = [each.removeprefix("bytes=").split("-") for each in ranges]
        sent = sum(int(last) + 1 - int(start) for start, last in ends)
        assert sent < 0.02 * first.told[-1].needed_bytes  # the header
        assert second.files() == first.files()
        told = second.told[-1]
        assert told.fetched == {"peer first": told.needed_bytes} != {"peer first": 0}
        assert told.eta_s is None
        second.fetch(1)  # which no node has
        assert second.told[-1].fetched.keys() == {"hub"}


def test_nodes_that_start_together_fetch_most_tensors_once(
    tmp_path: Path, hub: HubServer, second: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_CHUNK_BYTES", 1)
    first = Node("first", tmp_path / "first", hub)
    together = threading.Barrier(2)
    first.on_told = second.on_told = lambda told: told.fetched_bytes or together.wait()
    with first.serving(second), second.serving(first), ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(node.fetch, 0) for node in (first, second)]:
            done.result()
    assert first.files() == second.files()
    needed = min(node.told[-1].needed_bytes for node in (first, second))
    fetched = sum(node.told[-1].fetched["hub"] for node in (first, second))
    assert fetched < 1.9 * needed
    for node in (first, second):
        assert node.told[-1].fetched_bytes == node.told[-1].needed_bytes


def test_a_pinned_layer_comes_from_the_first_while_the_hub_is_away(
    first: Node, second: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with first.serving(second):
        second.fetch(0)
        assert second.files() == first.files()
        with pytest.raises(CheckpointError, match="HF_HUB_OFFLINE is set"):
            second.fetch(1)


def test_wrong_bytes_of_a_peer_are_deleted_and_come_from_the_hub(first: Node, second: Node) -> None:
    good = first.files()
    for damaged in first.store.path.rglob("*.safetensors"):
        content = bytearray(damaged.read_bytes())
        content[-1] ^= 0xFF
        damaged.write_bytes(content)
    with first.serving(second):
        second.fetch(0)
    assert second.files() == good
    told = second.told[-1]
    assert told.fetched == {"hub": told.needed_bytes}


def test_a_peer_that_dies_in_the_middle_costs_nothing_but_time(
    first: Node, second: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_peers, "_SILENT_S", 0.3)
    monkeypatch.setattr(weight_peers, "_PIECE_BYTES", 1 << 12)

    def die_at_half(told: WeightFetch) -> None:
        if told.fetched_bytes > told.needed_bytes / 2:
            first.kill()
        assert not any(name.endswith(".safetensors") for name in halves(second, first))

    second.on_told = die_at_half
    with first.serving(second):
        second.fetch(0)
    assert second.files() == first.files()
    assert second.told[-1].fetched.keys() == {"peer first", "hub"}


def test_a_disk_that_fills_up_while_a_peer_sends_is_named_and_leaves_no_half_file(
    first: Node, second: Node
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with first.serving(second):
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))  # of each file
        try:
            with pytest.raises(CheckpointError, match=r"cannot be written: .*\d+ bytes of weights"):
                second.fetch(0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert halves(second, first) == []
        second.fetch(0)
    assert second.files() == first.files()
    assert second.told[-1].fetched.keys() == {"peer first"}


def halves(node: Node, of: Node) -> list[str]:
    """Files that have not the bytes that they have at another node."""
    whole = of.files()
    return [name for name, content in node.files().items() if whole.get(name) != content]


def test_a_peer_that_cannot_be_dialled_is_waited_for_once_and_named(
    first: Node,
    second: Node,
    tmp_path: Path,
    hub: HubServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Behind a firewall, say: its port is not tried when a plan is deployed."""
    monkeypatch.setattr(weight_peers, "_OFFER_WITHIN_S", 0.5)
    monkeypatch.setattr(weight_peers, "_SILENT_S", 3600.0)
    monkeypatch.setattr(fetching, "_CHUNK_BYTES", 1)  # asks peers again before each tensor
    away = Node("away", tmp_path / "away", hub)
    with first.serving(second):
        hub.peers = WeightPeers(peers=(away.address, *hub.peers.peers))
        second.fetch(1)
    assert second.told[-1].fetched == {"hub": second.told[-1].needed_bytes}
    (told,) = [each.getMessage() for each in caplog.records if "node away" in each.getMessage()]
    assert f"lets this machine dial {away.address.endpoint}" in told


def test_a_name_that_no_file_can_have_is_refused(first: Node, second: Node) -> None:
    access = WeightAccess(
        directory=str(second.store.path),
        site=second.hub.url,
        credential=second.name,
        secret_key_file=str(second.folder / "key"),
    )
    with first.serving(second):
        with peers_of(access)(REPOSITORY, COMMIT) as peers:
            assert peers.read("\0.safetensors") is None
        second.fetch(0)
    assert second.told[-1].fetched.keys() == {"peer first"}


@pytest.mark.parametrize("case", ["not listed", "another model", "another commit"])
def test_a_peer_serves_the_checkpoint_of_its_deployment_to_its_nodes_alone(
    first: Node, second: Node, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setattr(weight_peers, "_OFFER_WITHIN_S", 0.5)
    peers = [] if case == "not listed" else [second]
    checkpoint = {
        "another model": f"org/other@{COMMIT}",
        "another commit": f"{REPOSITORY}@{'f' * 40}",
    }
    with first.serving(*peers, checkpoint=checkpoint.get(case, NAME)):
        second.fetch(0)
    assert second.told[-1].fetched.keys() == {"hub"}
