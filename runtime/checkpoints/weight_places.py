"""Where the weights of a repository are looked for, and its small files."""

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from runtime.checkpoints.errors import disk_errors
from runtime.checkpoints.fetch_progress import Tell
from runtime.checkpoints.hub import Repository
from runtime.checkpoints.hub_names import (
    HubError,
    HubName,
    HubSettings,
    HubUnreachable,
    MissingFile,
)
from runtime.checkpoints.metadata import (
    CHAT_TEMPLATE,
    CONFIG,
    GENERATION_CONFIG,
    TOKENIZER,
    TOKENIZER_CONFIG,
)
from runtime.checkpoints.peer_stores import OpenPeers, no_peers
from runtime.checkpoints.tensor_holders import INDEX_FILE, SINGLE_FILE, shard_names
from runtime.checkpoints.weight_store import WeightStore
from runtime.whole_file import write_whole

ResultT = TypeVar("ResultT")
logger = logging.getLogger(__name__)
# config.json is written last: a folder that has it has all that the repository has of them
SMALL_FILES = (TOKENIZER, TOKENIZER_CONFIG, GENERATION_CONFIG, CHAT_TEMPLATE, CONFIG)
MOST_SMALL_BYTES = 100_000_000
LISTING = "listing.json"  # the file of each tensor of the repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where weights are looked for, in this order: other nodes' stores, then `sources`."""

    sources: Sequence[HubSettings]
    peers: OpenPeers = no_peers
    tell: Tell = field(default=lambda _: None)
    sleep: Callable[[float], None] = time.sleep

    def first(self, name: HubName, act: Callable[[Repository, HubSettings], ResultT]) -> ResultT:
        """What `act` returns for the first source that has what it asks for. Raises HubError."""

        def ask(source: HubSettings) -> ResultT:
            with self.repository(name, source) as repository:
                return act(repository, source)

        return of_first(self.sources, ask)

    @contextmanager
    def repository(self, name: HubName, source: HubSettings) -> Iterator[Repository]:
        """Raises HubUnreachable if the network must not be used."""
        if source.offline:
            raise HubUnreachable(
                f"{name.repository} is not all on this machine, and HF_HUB_OFFLINE is set; unset "
                "it, or give a folder"
            )
        with Repository(name, source, sleep=self.sleep) as repository:
            yield repository


def of_first(sources: Sequence[HubSettings], ask: Callable[[HubSettings], ResultT]) -> ResultT:
    """The answer of the first that has what is asked for. Raises HubError."""
    why: HubError | None = None
    for source in sources:
        try:
            return ask(source)
        except HubError as error:
            if isinstance(why, HubUnreachable):  # it may be the one that has it
                kind = HubUnreachable if isinstance(error, MissingFile) else type(error)
                error = kind(f"{why}; {error}")
            if not isinstance(error, MissingFile | HubUnreachable):
                raise error
            logger.info("not from %s: %s", source.endpoint, error)
            why = error
    raise why or HubError("no place is known to fetch weights from; give a folder")


def open_name(name: HubName, store: WeightStore, source: HubSettings, places: Places) -> HubName:
    """The name with the commit, whose small files are in the store then."""
    commit = name.revision if name.is_pinned else None
    if commit is None or not (store.folder(name.repository, commit).path / CONFIG).is_file():
        try:
            commit = _newest_small_files(name, store, source, places)
        except HubUnreachable as error:
            commit = store.last_commit(name)
            if commit is None:
                raise
            logger.warning("%s; using commit %s, which was fetched before", error, commit)
    return HubName(repository=name.repository, revision=commit)


def copy_small_files(name: HubName, store: WeightStore, places: Places) -> bool:
    """From other nodes; False if none has them."""
    folder = store.folder(name.repository, name.revision).path
    with places.peers(name.repository, name.revision) as peers, disk_errors(store.path):
        if peers.read(CONFIG) is None:
            return False
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for file in (LISTING, *SMALL_FILES):
            content = peers.read(file)
            if content is not None:
                write_whole(folder / file, content)
    return (folder / CONFIG).is_file()


def fetch_small_files(repository: Repository, folder: Path) -> None:
    """Raises HubError, MissingFile without a config.json, and OSError."""
    for file in SMALL_FILES:
        try:
            write_whole(folder / file, repository.read(file, most_bytes=MOST_SMALL_BYTES))
        except MissingFile:
            if file == CONFIG:
                raise


def read_index(
    repository: Repository, *, most_bytes: int = MOST_SMALL_BYTES
) -> tuple[bytes, Mapping[str, str]] | None:
    """The index of a repository as it is, and the file of each tensor; None if one file has all.

    Raises CheckpointError, and MissingFile for a repository with neither.
    """
    told = repository.told(INDEX_FILE)
    with suppress(MissingFile):
        content = repository.read(INDEX_FILE, most_bytes=most_bytes)
        try:
            return content, shard_names(json.loads(content), source=told)
        except (ValueError, RecursionError, AttributeError) as error:
            raise HubError(
                f"{told} is not a JSON object: {error}; choose another checkpoint"
            ) from None
    try:
        repository.file_bytes(SINGLE_FILE)
    except MissingFile:
        raise MissingFile(
            f"{repository.where} holds neither {SINGLE_FILE} nor {INDEX_FILE}; choose a model with "
            "safetensors"
        ) from None
    return None


def _newest_small_files(
    name: HubName, store: WeightStore, source: HubSettings, places: Places
) -> str:
    """Returns the commit."""
    with places.repository(name, source) as repository, disk_errors(store.path):
        commit = repository.commit(CONFIG)
        folder = store.folder(name.repository, commit).path
        if not (folder / CONFIG).is_file():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            fetch_small_files(repository, folder)
        store.remember_commit(name, commit)
    return commit
