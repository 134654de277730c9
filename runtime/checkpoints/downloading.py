"""Downloads a model of a hub into a folder, whole: safetensors, config.json and the tokenizer; or
one GGUF file."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from runtime.checkpoints.adding import (
    partial_folder,
    require_absent,
    require_room,
    sha256_of,
)
from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.fetch_progress import Progress
from runtime.checkpoints.hub import Repository
from runtime.checkpoints.hub_names import (
    HubError,
    HubName,
    HubSettings,
)
from runtime.checkpoints.metadata import CONFIG
from runtime.checkpoints.tensor_holders import INDEX_FILE, SINGLE_FILE
from runtime.checkpoints.weight_places import fetch_small_files, read_index
from runtime.whole_file import write_whole


def download(
    name: HubName,
    folder: Path,
    settings: HubSettings,
    *,
    progress: Progress,
    gguf: str = "",
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Have the model at `folder`, which must not exist; returns the commit.

    `gguf`: the GGUF file to have; empty: the safetensors, or the only GGUF file.
    `folder` appears when all is there, each large file compared with the hub's SHA-256. What was
    cut off goes on at the next call. Raises CheckpointError.
    """
    require_absent(folder)
    if settings.offline:
        raise CheckpointError(f"{name} was not downloaded: HF_HUB_OFFLINE is set; unset it")
    with Repository(name, settings, sleep=sleep) as repository:
        gguf = gguf or _only_gguf(name, repository)
        commit = repository.commit(gguf or CONFIG)
        with partial_folder(folder, commit) as part:
            _download(
                repository, part, [gguf] if gguf else _tensor_files(repository, part), progress
            )
            if not gguf:
                fetch_small_files(repository, part)
            _share(part)
    return commit


def _share(folder: Path) -> None:
    """Let those who may read the folder read its files, too: the site runs as another user than
    root, who may have downloaded them."""
    for file in folder.iterdir():
        file.chmod(folder.stat().st_mode & 0o666)


def _only_gguf(name: HubName, repository: Repository) -> str:
    """Empty if the repository has other files, or the hub does not list them.

    Raises HubError for several.
    """
    try:
        files = repository.info().gguf_files
    except HubError:
        return ""
    if not files:
        return ""
    if len(files) > 1:
        raise HubError(
            f"{name.repository} holds {len(files)} GGUF files: {', '.join(files)}; name one, as in "
            f"{name.repository}/{files[0]}"
        )
    return files[0]


def _download(
    repository: Repository, folder: Path, files: Sequence[str], progress: Progress
) -> None:
    sizes = {file: repository.file_bytes(file) for file in files}
    total = sum(sizes.values())
    done = sum(_held_bytes(folder / file) for file in sizes)
    require_room(folder, total - done)
    progress(done, total)
    for file, size in sizes.items():
        with (folder / file).open("ab") as target:
            for piece in repository.stream(file, target.tell(), size):
                target.write(piece)
                done += len(piece)
                progress(done, total)
            target.flush()
            os.fsync(target.fileno())
        expected = repository.sha256(file)
        if expected is not None and sha256_of(folder / file) != expected:
            (folder / file).unlink()
            raise HubError(
                f"{repository.told(file)} arrived with other bytes than its SHA-256 {expected} "
                "says; it was deleted: try again, or set HF_ENDPOINT to another hub"
            )


def _tensor_files(repository: Repository, folder: Path) -> list[str]:
    """Of the repository; `folder` has their index then, if there is one. Raises CheckpointError."""
    index = read_index(repository)
    if index is None:
        return [SINGLE_FILE]
    content, holders = index
    files = sorted(set(holders.values()))
    wrong = next((file for file in files if not file.endswith(".safetensors")), None)
    if wrong is not None:
        raise HubError(
            f"{repository.told(INDEX_FILE)} names {wrong[:80]!r}; only safetensors are downloaded"
        )
    write_whole(folder / INDEX_FILE, content)
    return files


def _held_bytes(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
