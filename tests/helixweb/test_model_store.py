"""The operator of a site downloads or adds a model once, for all nodes."""

import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from helixweb.command_line import exit_codes
from helixweb.inventory.hub import find_folder
from helixweb.inventory.models import LanguageModel
from runtime.checkpoints import hub as hub_client
from runtime.checkpoints.adding import add_checkpoint, partial_folder
from runtime.checkpoints.errors import CheckpointError
from tests.helixweb.site_in_process import Shell
from tests.runtime.hub_server import COMMIT, HubServer, hub_server

NAME = "org/small"


@pytest.fixture
def hub(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint  # takes seconds

    monkeypatch.setattr(hub_client, "_FIRST_PAUSE_S", 0.001)
    folder = tmp_path / "on_hub"
    make_tiny_checkpoint(folder, sizes=TinySizes(hidden_size=64, shards=2), seed=3)
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    settings.HELIX_MODELS_DIR = str(tmp_path / "models")
    with hub_server({NAME: folder}) as serving:
        settings.HF_ENDPOINT = serving.url
        yield serving


@pytest.fixture
def keyless(tmp_path: Path, db: None) -> Shell:
    """Commands on the site's machine, by a user without a key."""
    return Shell("", home=str(tmp_path))


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_model_is_downloaded_whole_over_cut_connections(keyless: Shell, hub: HubServer) -> None:
    hub.cut_after = [1000, 0, 50_000]
    assert keyless("model", "pull", NAME, "--json") == 0, keyless.err
    assert not hub.cut_after
    assert keyless.json()["commit"] == COMMIT
    folder = find_folder(NAME)
    assert folder is not None
    original = hub.repositories[NAME]
    expected = content(original)
    del expected["pytorch_model.bin"]
    assert content(folder) == expected
    readers = folder.stat().st_mode & 0o444
    assert {file.stat().st_mode & 0o444 for file in folder.iterdir()} == {readers}
    assert keyless("model", "pull", NAME) == exit_codes.FAILED
    assert "is there already" in keyless.err


def test_only_a_file_with_wrong_bytes_is_fetched_again(keyless: Shell, hub: HubServer) -> None:
    *_, last = sorted(file.name for file in hub.repositories[NAME].glob("*.safetensors"))
    hub.wrong_at[last] = 9000
    assert keyless("model", "pull", NAME) == exit_codes.FAILED
    assert f"{last} arrived with other bytes" in keyless.err
    assert find_folder(NAME) is None
    hub.wrong_at.clear()
    before = hub.sent_bytes
    assert keyless("model", "pull", NAME) == 0
    size = (hub.repositories[NAME] / last).stat().st_size
    assert size <= hub.sent_bytes - before < 1.5 * size


def test_one_gguf_file_of_a_repository_is_downloaded(keyless: Shell, hub: HubServer) -> None:
    of_gguf = hub.repositories[NAME].with_name("of_gguf")
    of_gguf.mkdir()
    (of_gguf / "small-Q8_0.gguf").write_bytes(b"GGUF" + bytes(100_000))
    hub.repositories["org/small-GGUF"] = of_gguf
    hub.cut_after = [1000]
    assert keyless("model", "pull", "org/small-GGUF", "--json") == 0, keyless.err
    file = Path(keyless.json()["file"])
    assert file.name == "small-Q8_0.gguf"
    assert file.read_bytes() == (of_gguf / file.name).read_bytes()
    assert find_folder("org/small-GGUF") == file.parent
    (of_gguf / "small-F16.gguf").write_bytes(b"GGUF" + bytes(1000))
    file.unlink()
    file.parent.rmdir()
    assert keyless("model", "pull", "org/small-GGUF") == exit_codes.FAILED
    assert "2 GGUF files: small-F16.gguf, small-Q8_0.gguf; name one, as in" in keyless.err
    hub.wrong_at["small-F16.gguf"] = 500
    assert keyless("model", "pull", "org/small-GGUF/small-F16.gguf") == exit_codes.FAILED
    assert "arrived with other bytes" in keyless.err
    hub.wrong_at.clear()
    assert keyless("model", "pull", "org/small-GGUF/small-F16.gguf") == 0, keyless.err
    assert f"helixweb model add {file.with_name('small-F16.gguf')}" in keyless.out
    assert keyless("model", "pull", "org/small-GGUF/none.gguf") == exit_codes.FAILED


@pytest.mark.parametrize(
    ("setting", "value", "name", "message"),
    [
        ("HELIX_MODELS_DIR", "", NAME, "HELIX_MODELS_DIR is not set"),
        ("HF_HUB_OFFLINE", True, NAME, "HF_HUB_OFFLINE is set"),
        ("HF_TOKEN", "", "../small", "is not a name on the hub"),
        ("HF_TOKEN", "", "org/none", "org/none does not exist"),
    ],
)
def test_what_cannot_be_downloaded_says_why(
    keyless: Shell,
    hub: HubServer,
    settings: Any,
    setting: str,
    value: object,
    name: str,
    message: str,
) -> None:
    setattr(settings, setting, value)
    assert keyless("model", "pull", name) == exit_codes.FAILED
    assert message in keyless.err


@pytest.fixture
def folder(hub: HubServer) -> Path:
    """A checkpoint of two shards on the site's machine, with a pickle beside them."""
    return hub.repositories[NAME]


def test_a_folder_of_this_machine_is_added(shell: Shell, folder: Path, settings: Any) -> None:
    assert shell("model", "add", folder, "--store", "--name", "mine", "--json") == 0, shell.err
    added = Path(settings.HELIX_MODELS_DIR) / "mine"
    row = shell.json()
    assert (row["name"], row["checkpoint"], row["num_layers"]) == ("mine", str(added), 12)
    assert find_folder(str(added)) == added
    expected = content(folder)
    del expected["pytorch_model.bin"]
    assert content(added) == expected
    assert shell("model", "add", folder, "--store", "--name", "mine") == exit_codes.FAILED
    assert "is there already" in shell.err
    assert shell("model", "add", added, "--name", "other", "--json") == 0, shell.err
    assert shell.json()["name"] == "other"


def lose_shard(folder: Path) -> None:
    max(folder.glob("*.safetensors")).unlink()


def cut_shard(folder: Path) -> None:
    shard = max(folder.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-100])


def swap_shards(folder: Path) -> None:
    first, second = sorted(folder.glob("*.safetensors"))
    second.write_bytes(first.read_bytes())


def lose_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def link_out(folder: Path) -> None:
    secret = folder.parent / "secret.json"
    (folder / "tokenizer.json").replace(secret)
    (folder / "tokenizer.json").symlink_to(secret)


def pickle_alone(folder: Path) -> None:
    for file in folder.glob("*.safetensors*"):
        file.unlink()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lose_shard, "lacks; download the checkpoint again"),
        (cut_shard, "is not where its header says"),
        (swap_shards, "which model.safetensors.index.json says it has"),
        (lose_config, "config.json does not exist"),
        (link_out, "leads out of the checkpoint"),
        (pickle_alone, "give a checkpoint in safetensors format"),
    ],
)
def test_no_half_or_foreign_folder_is_added(
    shell: Shell, folder: Path, spoil: Callable[[Path], None], message: str
) -> None:
    spoil(folder)
    assert shell("model", "add", folder, "--store", "--name", "mine") == exit_codes.FAILED
    assert message in shell.err
    assert find_folder("mine") is None
    assert not LanguageModel.objects.exists()


def test_a_snapshot_of_the_hub_is_added(shell: Shell, folder: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--org--small" / "snapshots" / COMMIT
    blobs = tmp_path / "models--org--small" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate(folder.iterdir()):
        file.rename(blobs / str(number))
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    assert shell("model", "add", snapshot, "--store", "--name", "mine") == 0, shell.err
    added = find_folder("mine")
    assert not any(file.is_symlink() for file in added.iterdir())


def test_a_disk_that_fills_up_leaves_nothing_behind(folder: Path) -> None:
    size = max(file.stat().st_size for file in folder.iterdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with TemporaryDirectory(dir="/dev/shm") as other_disk:
        added = Path(other_disk) / "mine"
        resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1000, limits[1]))  # of each file
        try:
            with pytest.raises(CheckpointError, match="cannot be written"):
                add_checkpoint(folder, added, progress=lambda *_: None)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert [file.name for file in added.parent.iterdir()] == [".mine.lock"]
        add_checkpoint(folder, added, progress=lambda *_: None)
        assert content(added).items() <= content(folder).items()


def test_only_one_process_writes_a_model(keyless: Shell, hub: HubServer, settings: Any) -> None:
    target = Path(settings.HELIX_MODELS_DIR) / NAME
    with partial_folder(target, COMMIT):
        assert keyless("model", "pull", NAME) == exit_codes.FAILED
        assert f"process {os.getpid()} writes {target} now" in keyless.err
        assert find_folder(f"org/.small-{COMMIT}") is None


def test_parts_of_older_commits_are_removed(keyless: Shell, hub: HubServer, settings: Any) -> None:
    first, *_ = sorted(file.name for file in hub.repositories[NAME].glob("*.safetensors"))
    hub.wrong_at[first] = 9000
    assert keyless("model", "pull", NAME) == exit_codes.FAILED
    folder = Path(settings.HELIX_MODELS_DIR) / "org"
    assert (folder / f".small-{COMMIT}").is_dir()
    hub.wrong_at.clear()
    hub.commit = "f" * 40
    assert keyless("model", "pull", NAME) == 0
    assert {file.name for file in folder.iterdir()} == {"small", ".small.lock"}
