"""Reads what a model on the hub says of itself: config.json and the headers of its safetensors.

Only the configured hub (`HF_ENDPOINT`) is asked, and only for names that `is_hub_name` accepts.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from django.conf import settings

from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.hub import Repository
from runtime.checkpoints.hub_names import (
    HubName,
    HubSettings,
    MissingFile,
    gguf_remedy,
    parse_gguf_name,
    parse_hub_name,
)
from runtime.checkpoints.metadata import CONFIG, parse_object
from runtime.checkpoints.model_facts import facts_from, sizes_of
from runtime.checkpoints.safetensors_header import TensorEntry, parse_header
from runtime.checkpoints.tensor_holders import INDEX_FILE, SINGLE_FILE
from runtime.checkpoints.weight_places import SMALL_FILES, read_index
from runtime.protocol.checkpoint_looks import ModelFacts

_TIMEOUT_S = 5.0
_LONGEST_CONFIG_BYTES = 4_000_000
_LONGEST_INDEX_BYTES = 32_000_000
_LONGEST_HEADER_BYTES = 32_000_000
_MOST_SHARDS = 200
WHOLE_FILES = (*SMALL_FILES, INDEX_FILE)
_SUFFIX = ".safetensors"


def is_hub_name(text: str) -> bool:
    """True for `org/model` or `model`, as the hub names repositories, with `@revision` or not, and
    for `org/model/file.gguf`."""
    return parse_hub_name(text) is not None or parse_gguf_name(text) is not None


def read_hub(text: str) -> ModelFacts:
    """The facts of a model on the hub, of its newest version unless a revision is named.

    Raises CheckpointError.
    """
    name = parse_hub_name(text)
    of_gguf = parse_gguf_name(text)
    if of_gguf is not None:
        raise CheckpointError(gguf_remedy(of_gguf[0].repository, [of_gguf[1]]))
    if name is None:
        raise CheckpointError(f"{text!r} is not a name on the hub; give one like org/model")
    with _repository(name, text) as repository:
        try:
            config = repository.read(CONFIG, most_bytes=_LONGEST_CONFIG_BYTES)
            raw = parse_object(config, source=repository.told(CONFIG))
            sizes = _sizes(repository, raw)
        except MissingFile as error:
            files = _gguf_files(repository)
            if not files:
                raise
            raise CheckpointError(gguf_remedy(name.repository, files)) from error
    return facts_from(raw, sizes, checkpoint=text, name=name.repository.rpartition("/")[2])


def read_commit(name: HubName) -> str:
    """The commit that the revision `name` refers to now. Raises CheckpointError."""
    with _repository(name, str(name)) as repository:
        return repository.commit(CONFIG)


@contextmanager
def _repository(name: HubName, text: str) -> Iterator[Repository]:
    """The repository on the configured hub, called `text` in messages. Raises CheckpointError."""
    if settings.HF_HUB_OFFLINE:
        raise CheckpointError(
            f"{text!r} was not looked up: HF_HUB_OFFLINE is set; give a folder or a GGUF file"
        )
    hub = HubSettings(endpoint=settings.HF_ENDPOINT.rstrip("/"), token=settings.HF_TOKEN)
    with Repository(name, hub, timeout_s=_TIMEOUT_S, most_tries=1) as repository:
        yield repository


def _gguf_files(repository: Repository) -> tuple[str, ...]:
    """Its GGUF files; empty if there are other weights, or the hub does not list files."""
    try:
        return repository.info().gguf_files
    except CheckpointError:
        return ()


def _sizes(repository: Repository, raw: dict[str, Any]) -> DecoderSizes:
    index = read_index(repository, most_bytes=_LONGEST_INDEX_BYTES)
    files = {SINGLE_FILE} if index is None else set(index[1].values())

    def entries() -> dict[str, TensorEntry]:
        if len(files) > _MOST_SHARDS:
            raise CheckpointError(
                f"{repository.told(INDEX_FILE)} names {len(files)} files; at most {_MOST_SHARDS} "
                "are read: give the model as a folder"
            )
        return {
            name: entry
            for file in sorted(files)
            for name, entry in _entries(repository, file).items()
        }

    return sizes_of(raw, entries, source=PurePosixPath(repository.told(CONFIG)))


def _entries(repository: Repository, file: str) -> dict[str, TensorEntry]:
    header, data_bytes = repository.safetensors_header(file, most_bytes=_LONGEST_HEADER_BYTES)
    return parse_header(header, data_bytes=data_bytes, source=repository.told(file))


def find_folder(model: str) -> Path | None:
    """The folder of a model, by its path on the site or by its name below the models folder."""
    if settings.HELIX_MODELS_DIR and "\0" not in model:
        root = Path(settings.HELIX_MODELS_DIR).resolve()
        for path in (Path("/") / model, root / model):
            found = path.resolve()
            if found.is_relative_to(root) and found != root and found.is_dir():
                # hidden folders contain downloads in progress
                is_whole = not any(part[0] == "." for part in found.relative_to(root).parts)
                return found if is_whole else None
    return None


def is_served(path: Path) -> bool:
    """True for weights, their index, config.json and the tokenizer; links may lead nowhere else."""
    root = Path(settings.HELIX_MODELS_DIR).resolve()
    return _is_known(path.name) and path.is_file() and path.resolve().is_relative_to(root)


def commit_of(folder: Path) -> str:
    """40 hex digits in place of a commit; they change whenever a file that is served changes.

    `folder` is one that `find_folder` found. Computed for each range of a tensor that is served.
    """
    parts = []
    with os.scandir(folder) as entries:
        known = sorted((each for each in entries if _is_known(each.name)), key=lambda one: one.name)
    for entry in known:
        # to resolve each path costs more than all else; only links can lead out of the folder
        if is_served(Path(entry.path)) if entry.is_symlink() else entry.is_file():
            state = entry.stat()
            parts.append(f"{entry.name} {state.st_size} {state.st_mtime_ns}")
    text = "\n".join(parts).encode()
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()


def _is_known(name: str) -> bool:
    return name in WHOLE_FILES or name.endswith(_SUFFIX)
