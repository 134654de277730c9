"""A stage gets the tensors of its layers from a hub, through all that goes wrong on the way."""

import json
import os
import resource
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from family_checkpoints import BRIDGED, LAYERS, save
from hub_server import COMMIT, HubServer, hub_server
from quantized_checkpoints import quantize

from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.fetching import FetchedCheckpoint, fetch_checkpoint, is_elsewhere
from runtime.checkpoints.hub_names import HubSettings
from runtime.checkpoints.model_facts import read_sizes
from runtime.checkpoints.weight_places import Places
from runtime.checkpoints.weight_source import WeightSource
from runtime.checkpoints.weight_store import WeightStore
from runtime.models.compact_decoder import CompactDecoder
from runtime.models.config import read_config
from runtime.models.decoder import Decoder
from runtime.models.hf_bridge import BridgedDecoder
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.models.weights import load_decoder, wanted_tensors
from runtime.protocol.weight_fetch import WeightFetch

NAME = "org/small"
SIZES = TinySizes(num_layers=4, hidden_size=128, intermediate_size=512, max_position_embeddings=64)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub") / "small"
    make_tiny_checkpoint(folder, sizes=SIZES, seed=3)
    return folder


@pytest.fixture
def hub(checkpoint: Path) -> Iterator[HubServer]:
    with hub_server({NAME: checkpoint}) as serving:
        yield serving


class Node:
    """A machine with a store, which fetches from `hub`."""

    def __init__(self, path: Path, hub: HubServer, *, token: str = "") -> None:
        self.store = WeightStore(path=path)
        self.settings = HubSettings(endpoint=hub.url, token=token)
        self.slept: list[float] = []
        self.seen: list[tuple[int, int]] = []

    def open(self, name: str = NAME) -> FetchedCheckpoint:
        return fetch_checkpoint(
            name, self.store, Places(sources=[self.settings], sleep=self.slept.append)
        )

    def fetch(self, first: int, end: int, name: str = NAME) -> Path:
        fetched = self.open(name)
        config = read_config(fetched.folder, fetched.entries)
        WeightSource(folder=fetched.folder, fetched=fetched).fetch(
            partial(wanted_tensors, config, first=first, end=end),
            read_bytes=0,
            progress=lambda done, total: self.seen.append((done, total)),
        )
        return fetched.folder

    def tensors(self) -> list[Path]:
        return list(self.store.path.rglob("*.safetensors"))


@pytest.fixture
def node(tmp_path: Path, hub: HubServer) -> Node:
    return Node(tmp_path / "store", hub)


def load(folder: Path, first: int, end: int, *, whole: Path | None = None) -> Decoder:
    """`whole` has all the headers, as a fetched checkpoint reads them from the hub."""
    config = read_config(whole or folder)
    return load_decoder(folder, config, first=first, end=end, device=CPU, progress=lambda *_: None)


def assert_same(fetched: Path, original: Path, first: int, end: int) -> None:
    """A stage that loads the fetched layers holds what one with the whole checkpoint holds."""
    ours, theirs = load(fetched, first, end), load(original, first, end)
    assert isinstance(ours, CompactDecoder)
    assert isinstance(theirs, CompactDecoder)
    assert ours.held == theirs.held
    for number, expected in theirs.layers.items():
        layer = ours.layers[number]
        assert layer.rule == expected.rule
        held, wanted = layer.tensors(), expected.tensors()
        assert held.keys() == wanted.keys()
        assert all(torch.equal(held[name], wanted[name]) for name in held)


def test_sizes_of_quantised_layers_are_known_before_and_after_some_are_fetched(
    tmp_path: Path,
) -> None:
    make_tiny_checkpoint(tmp_path / "plain", sizes=SIZES, seed=3)
    quantize(tmp_path / "plain", tmp_path / "awq", "awq")
    with hub_server({NAME: tmp_path / "awq"}) as serving:
        node = Node(tmp_path / "store", serving)
        fetched = node.open()
        source = WeightSource(folder=fetched.folder, fetched=fetched)
        before, whole = source.sizes(), read_sizes(tmp_path / "awq")
        assert before == whole
        source.fetch(
            lambda names: [name for name in names if ".layers.1." in name],
            read_bytes=0,
            progress=lambda *_: None,
        )
        again = node.open()
        assert WeightSource(folder=again.folder, fetched=again).sizes() == whole


@pytest.mark.parametrize(("shards", "first", "end"), [(1, 1, 3), (3, 0, 2), (3, 2, 4)])
def test_a_stage_fetches_its_own_layers_and_at_most_two_percent_more(
    tmp_path: Path, shards: int, first: int, end: int
) -> None:
    original = tmp_path / "original"
    make_tiny_checkpoint(original, sizes=replace(SIZES, shards=shards), seed=3)
    (original / "pytorch_model.bin").write_bytes(b"a pickle")
    with hub_server({NAME: original}) as hub:
        node = Node(tmp_path / "store", hub)
        node.open()
        before = hub.sent_bytes  # config.json and the tokenizer
        folder = node.fetch(first, end)
        own_bytes = read_config(original).weights_bytes(first, end)
        assert own_bytes <= hub.sent_bytes - before <= 1.02 * own_bytes
        assert_same(folder, original, first, end)
        assert node.seen[-1] == (own_bytes, own_bytes)
        assert [done for done, _ in node.seen] == sorted(done for done, _ in node.seen)
        assert not any(file.endswith(".bin") for file, _ in hub.asked)
        before = hub.sent_bytes
        node.fetch(first, end)
        assert hub.sent_bytes - before <= 1  # only which commit it is


def test_more_layers_join_those_that_are_there(
    node: Node, hub: HubServer, checkpoint: Path
) -> None:
    node.fetch(1, 2)
    before = hub.sent_bytes
    folder = node.fetch(1, 3)
    config = read_config(checkpoint)
    assert hub.sent_bytes - before < 1.02 * config.weights_bytes(2, 3)
    assert_same(folder, checkpoint, 1, 3)


@pytest.mark.parametrize(
    "family", ["qwen3 moe", pytest.param("gemma3", marks=pytest.mark.families)]
)
def test_a_family_of_the_bridge_fetches_its_own_layers(tmp_path: Path, family: str) -> None:
    original = tmp_path / "original"
    save(BRIDGED[family], original, seed=1)
    with hub_server({NAME: original}) as hub:
        node = Node(tmp_path / "store", hub)
        for first, end in [(1, 2), (2, LAYERS)]:
            fetched = node.fetch(first, end)
            ours = load(fetched, first, end, whole=original)
            theirs = load(original, first, end)
            assert isinstance(ours, BridgedDecoder)
            assert isinstance(theirs, BridgedDecoder)
            held, expected = ours.model.state_dict(), theirs.model.state_dict()
            for name in held.keys() | expected.keys():
                assert held[name].is_meta == expected[name].is_meta, name
                assert held[name].is_meta or torch.equal(held[name], expected[name]), name
            if first == 1:
                all_bytes = sum(file.stat().st_size for file in original.glob("*.safetensors"))
                assert hub.sent_bytes < all_bytes / 2


def test_connections_that_are_cut_are_resumed_where_they_ended(
    node: Node, hub: HubServer, checkpoint: Path
) -> None:
    node.open()
    before = hub.sent_bytes
    hub.cut_after = [100_000, 1, 50_000, 0, 7]
    hub.busy = 2
    folder = node.fetch(0, 4)
    assert not hub.cut_after
    assert_same(folder, checkpoint, 0, 4)
    assert hub.sent_bytes - before < 1.02 * read_config(checkpoint).weights_bytes(0, 4)
    assert node.slept


def test_a_fetch_that_was_killed_goes_on_after_a_restart(
    node: Node, hub: HubServer, checkpoint: Path
) -> None:
    class Killed(Exception):
        pass

    def die_at_half(done: int, total: int) -> None:
        if done > total / 2:
            raise Killed

    fetched = node.open()
    before = hub.sent_bytes
    with pytest.raises(Killed):
        fetched.fetch(fetched.names(), die_at_half)
    assert node.tensors() == []  # nothing that is not whole has the name of a tensor
    folder = node.fetch(0, 4)
    assert_same(folder, checkpoint, 0, 4)
    # what was on its way when it died is sent again
    assert hub.sent_bytes - before < 1.8 * read_config(checkpoint).weights_bytes(0, 4)
    assert node.seen[0][0] > node.seen[0][1] / 2


@pytest.mark.parametrize("place", ["header", "data"])
def test_wrong_bytes_are_refused_and_deleted(
    node: Node, hub: HubServer, checkpoint: Path, place: str
) -> None:
    hub.wrong_at["model.safetensors"] = 9 if place == "header" else 300_000
    with pytest.raises(CheckpointError, match=r"is damaged|other bytes than its SHA-256"):
        node.fetch(0, 4)
    assert node.tensors() == []
    hub.wrong_at.clear()
    assert_same(node.fetch(0, 4), checkpoint, 0, 4)


def test_a_wrong_small_file_is_refused(node: Node, hub: HubServer) -> None:
    hub.wrong_at["config.json"] = 5
    with pytest.raises(CheckpointError, match=r"config\.json holds other bytes than its checksum"):
        node.open()
    hub.wrong_at.clear()
    node.open()


def test_a_new_commit_in_the_middle_is_refused(node: Node, hub: HubServer) -> None:
    fetched = node.open()
    hub.commit = "f" * 40
    with pytest.raises(CheckpointError, match="check the name"):
        fetched.fetch(fetched.names(), lambda *_: None)
    assert node.open().folder.name == "f" * 40


@pytest.mark.parametrize("branch", ["master", "trunk"])
def test_the_default_branch_may_have_any_name(
    node: Node, hub: HubServer, checkpoint: Path, branch: str
) -> None:
    hub.branch = branch
    folder = node.fetch(1, 2)
    assert folder.name == COMMIT
    assert_same(folder, checkpoint, 1, 2)
    assert node.fetch(1, 2, f"{NAME}@{branch}") == folder
    with pytest.raises(CheckpointError, match="check the name"):
        node.open(f"{NAME}@nosuchbranch")


def test_a_server_without_ranges_is_refused(node: Node, hub: HubServer) -> None:
    node.open()
    hub.ignores_ranges = True
    with pytest.raises(CheckpointError, match="does not serve parts of"):
        node.fetch(0, 1)


def test_the_token_goes_to_the_hub_and_not_to_the_store_behind_it(
    tmp_path: Path, hub: HubServer
) -> None:
    hub.token = "hf_good"
    with pytest.raises(CheckpointError, match="set HF_TOKEN"):
        Node(tmp_path / "a", hub).open()
    with pytest.raises(CheckpointError, match=r"does not accept HF_TOKEN.*may have expired"):
        Node(tmp_path / "b", hub, token="hf_old").open()
    assert "hf_good" not in repr(HubSettings(token="hf_good"))
    Node(tmp_path / "c", hub, token="hf_good").fetch(1, 2)


def test_a_source_that_dies_in_the_middle_is_followed_by_the_next(
    tmp_path: Path, hub: HubServer, checkpoint: Path
) -> None:
    """The site, say: what it sent is not fetched again."""
    with hub_server({NAME: checkpoint}) as site:
        node = Node(tmp_path / "store", hub)
        sources = [HubSettings(endpoint=site.url, is_site=True), node.settings]

        def die_at_half(told: WeightFetch) -> None:
            if told.source == "site" and told.fetched_bytes > told.needed_bytes / 2:
                site.busy = sys.maxsize
                site.cut_after = [0]

        site.cut_after = [400_000, 100_000, 100_000]
        places = Places(sources=sources, tell=die_at_half, sleep=lambda _: None)
        fetched = fetch_checkpoint(f"{NAME}@{COMMIT}", node.store, places)
        before = hub.sent_bytes
        told: list[tuple[int, int]] = []
        fetched.fetch(fetched.names(), lambda done, total: told.append((done, total)))
    own_bytes = read_config(checkpoint).weights_bytes(0, 4)
    assert told[-1] == (own_bytes, own_bytes)
    assert hub.sent_bytes - before < 0.6 * own_bytes
    assert_same(fetched.folder, checkpoint, 0, 4)


def test_a_token_that_expires_in_the_middle_says_so_and_a_new_one_goes_on(
    tmp_path: Path, hub: HubServer, checkpoint: Path
) -> None:
    hub.token = "hf_good"
    node = Node(tmp_path / "store", hub, token="hf_good")
    node.open()
    hub.cut_after = [400_000]
    hub.refuse_after = hub.sent_bytes + 300_000
    with pytest.raises(CheckpointError, match="may have expired: set a new one"):
        node.fetch(0, 4)
    hub.token, hub.refuse_after = "hf_new", None
    before = hub.sent_bytes
    again = Node(tmp_path / "store", hub, token="hf_new")
    assert_same(again.fetch(0, 4), checkpoint, 0, 4)
    own_bytes = read_config(checkpoint).weights_bytes(0, 4)
    assert hub.sent_bytes - before < own_bytes - 390_000


def test_an_expired_address_of_the_store_is_asked_for_again(node: Node, hub: HubServer) -> None:
    node.open()
    hub.expired = 2
    node.fetch(1, 2)
    assert hub.expired == 0


def test_names_that_are_not_there_are_named(node: Node, hub: HubServer, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"org/none does not exist on http.*check the name"):
        node.open("org/none")
    with pytest.raises(CheckpointError, match="check the name"):
        node.open(f"{NAME}@nosuchbranch")
    hub.repositories["org/pickled"] = folder = tmp_path / "pickled"
    shutil.copytree(hub.repositories[NAME], folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="choose a model with safetensors"):
        node.fetch(0, 1, "org/pickled")
    hub.server.server_close()
    hub.server.shutdown()
    with pytest.raises(CheckpointError, match=r"cannot be reached.*check HF_ENDPOINT"):
        Node(tmp_path / "other", hub).open()


def test_what_was_fetched_is_used_while_the_hub_is_away(
    node: Node, hub: HubServer, checkpoint: Path
) -> None:
    node.fetch(0, 2)
    hub.repositories.clear()
    node.settings = replace(node.settings, offline=True)
    assert_same(node.fetch(0, 2), checkpoint, 0, 2)
    with pytest.raises(CheckpointError, match="HF_HUB_OFFLINE is set"):
        node.fetch(0, 3)
    assert_same(node.fetch(0, 2, f"{NAME}@{COMMIT}"), checkpoint, 0, 2)


def test_the_least_recently_used_layers_go_first(
    node: Node, hub: HubServer, checkpoint: Path
) -> None:
    config = read_config(checkpoint)
    layer_bytes = config.weights_bytes(1, 2)
    node.store = WeightStore(path=node.store.path, quota_bytes=int(2.2 * layer_bytes))
    for age, layer in [(300, 0), (200, 1), (100, 2)]:
        folder = node.fetch(layer, layer + 1)
        for file in node.tensors():
            if f".layers.{layer}." in file.name or layer == 0:
                os.utime(file, (file.stat().st_mtime - age,) * 2)
    held = {file.name.split(".")[2] for file in node.tensors() if ".layers." in file.name}
    assert {"1", "2"} <= held
    assert sum(file.stat().st_size for file in node.tensors()) <= 2.2 * layer_bytes
    listed = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    assert set(listed.values()) == {file.name for file in node.tensors()}
    assert_same(folder, checkpoint, 1, 3)


def test_a_store_that_is_too_small_says_how_much_is_missing(
    node: Node, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.fetch(1, 2)
    held = node.tensors()
    node.store = WeightStore(path=node.store.path, quota_bytes=100_000)
    with pytest.raises(CheckpointError, match=r"\d+ bytes too many for the quota of 100000 bytes"):
        node.fetch(2, 3)
    node.store = WeightStore(path=node.store.path)
    disk = shutil.disk_usage(node.store.path)
    almost_full = disk._replace(total=1 << 44, free=1_000)
    monkeypatch.setattr("shutil.disk_usage", lambda _: almost_full)
    with pytest.raises(CheckpointError, match=r"bytes too many for the disk, of whose"):
        node.fetch(2, 3)
    assert node.tensors() == held


def test_a_large_disk_in_use_takes_weights_until_1_gib_is_left(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_use = shutil.disk_usage(node.store.path.parent)._replace(total=1 << 44, free=1 << 31)
    monkeypatch.setattr("shutil.disk_usage", lambda _: in_use)
    node.fetch(1, 2)
    assert node.tensors()


def test_a_disk_that_fills_up_is_named_and_the_fetch_goes_on_later(
    node: Node, checkpoint: Path
) -> None:
    fetched = node.open()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))  # of each file
    try:
        with pytest.raises(CheckpointError, match=r"cannot be written: .*\d+ bytes of weights are"):
            fetched.fetch(fetched.names(), lambda *_: None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert node.tensors() == []
    assert_same(node.fetch(0, 4), checkpoint, 0, 4)


@pytest.mark.parametrize(
    ("checkpoint", "expected"),
    [
        ("org/small", True), ("gpt2", True), ("org/small@v1.0", True), ("/models/small", False),
        ("org/../small", False), ("a/b/c", False), ("tests", False), ("org/small?x", False),
        ("http://x/y", False), ("", False),
    ],
)  # fmt: skip
def test_names_of_hubs_are_told_from_paths(checkpoint: str, expected: bool) -> None:
    assert is_elsewhere(checkpoint, [HubSettings()]) == expected
