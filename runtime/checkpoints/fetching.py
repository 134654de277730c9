"""Fetches the tensors that a stage needs into a `WeightStore`, and nothing else.

Other nodes' stores are asked first, then the site, then the hub, for what is still missing. From
the latter a run of tensors that lie side by side is one request. A fetch that was cut off goes on
where it ended, within a process and after a restart. Only safetensors are read, never pickled
files.
"""

import hashlib
import itertools
import json
import logging
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from runtime.checkpoints.errors import CheckpointError, disk_errors
from runtime.checkpoints.fetch_progress import FetchProgress, Progress, Tell
from runtime.checkpoints.hub import Repository
from runtime.checkpoints.hub_names import (
    HubError,
    HubName,
    HubSettings,
    HubUnreachable,
    MissingFile,
    name_at,
    parse_hub_name,
    weight_sources,
)
from runtime.checkpoints.peer_stores import OpenPeers, PeerLost, PeerStores, no_peers
from runtime.checkpoints.safetensors_header import (
    LENGTH_BYTES,
    TensorEntry,
    parse_header,
)
from runtime.checkpoints.tensor_holders import SINGLE_FILE, shard_names
from runtime.checkpoints.tensor_runs import WantedTensor, fetch_run, place_of, runs_of
from runtime.checkpoints.weight_places import (
    LISTING,
    MOST_SMALL_BYTES,
    Places,
    copy_small_files,
    of_first,
    open_name,
    read_index,
)
from runtime.checkpoints.weight_store import WeightStore
from runtime.protocol.weight_access import WeightAccess
from runtime.protocol.weight_fetch import HUB_SOURCE, SITE_SOURCE, WeightFetch, peer_source
from runtime.whole_file import write_whole

logger = logging.getLogger(__name__)

_PAUSE_S = 0.1
_CHUNK_BYTES = 64 << 20  # at least, before it is looked what other nodes have


class FetchedCheckpoint:
    """A checkpoint whose tensors are fetched as they are needed; `folder` reads like any."""

    def __init__(self, name: HubName, store: WeightStore, places: Places) -> None:
        """`name` is pinned to a commit."""
        self._name = name
        self._store = store
        self._places = places
        self._held = store.folder(name.repository, name.revision)
        self._told = WeightFetch(needed_bytes=0)
        self._headers: dict[str, tuple[bytes, Mapping[str, TensorEntry]]] = {}

    @property
    def folder(self) -> Path:
        """config.json, the tokenizer, and the tensors that were fetched."""
        return self._held.path

    def names(self) -> Collection[str]:
        """Of all tensors that the repository has. Raises CheckpointError."""
        return self._files().keys()

    def entries(self) -> Mapping[str, TensorEntry]:
        """What the headers of the repository say of its tensors. Raises CheckpointError."""
        files = sorted(set(self._files().values()))
        return {name: entry for file in files for name, entry in self._header(file)[1].items()}

    def fetch(self, names: Collection[str], progress: Progress) -> int:
        """Have the tensors `names` in `folder`, with an index that lists them.

        Returns the bytes of those that were not there. Names that the repository lacks are left to
        the loader, which says what they are for.
        Raises CheckpointError: for a hub that cannot be reached, does not let this machine read,
        or sends wrong bytes, and for a disk or quota that is too small.
        """
        names = set(names) & set(self.names())
        with self._store.locked(lambda: self._wait(progress)), disk_errors(self.folder):
            missing = names - self._held.names()
            count = self._fetch(names, missing, progress) if missing else 0
            self._held.touch(names)
            self._held.write_index()
        return count

    def _fetch(self, names: Collection[str], missing: set[str], progress: Progress) -> int:
        with self._places.peers(self._name.repository, self._name.revision) as peers:
            offered = {name: size for name, (_, size) in peers.offers(missing).items()}
            wanted = self._wanted(missing - offered.keys())
            keep = {self._held.tensor_file(name) for name in names}
            keep |= {each.part.path for each in wanted}
            needed = sum(each.part.file_bytes - each.part.held_bytes() for each in wanted)
            self._store.make_room(needed + sum(offered.values()), keep=keep)
            sizes = offered | {each.part.name: each.end - each.at for each in wanted}
            held_bytes = sum(each.part.held_bytes() for each in wanted)
            count = FetchProgress(progress, self._places.tell, self._told, sizes, held_bytes)
            try:
                self._copy(missing, peers, count)
                if missing - self._held.names():
                    fetch = partial(self._fetch_chunks, missing, peers, count)
                    self._places.first(self._name, fetch)
            except OSError as error:
                raise CheckpointError(
                    f"{self.folder} cannot be written: {error.strerror or error}; {count.left} "
                    "bytes of weights are still missing: free disk space, or choose another "
                    "--weights-dir"
                ) from error
            finally:
                self._told = count.told
        return count.done

    def _copy(self, names: set[str], peers: PeerStores, count: FetchProgress) -> None:
        """Take what other nodes have of these. A node that does not send one whole is left."""
        while offers := peers.offers(names - self._held.names()):
            name, (node, size) = next(iter(offers.items()))
            count.expect(name, size)
            before = count.done
            try:
                stream = peers.stream(node, self._held.tensor_file(name).name, size)
                self._held.copy_in(name, count.counted(name, stream, peer_source(node)))
            except (PeerLost, CheckpointError) as error:
                logger.warning("not from node %s: %s", node, error)
                count.add(name, before - count.done)
                peers.leave(node)

    def _wanted(self, names: Collection[str]) -> list[WantedTensor]:
        """Where the site or the hub has these. Raises HubError."""
        files = self._files()
        wanted = []
        for name in sorted(names, key=lambda name: (files[name], name)):
            file = files[name]
            header, entries = self._header(file)
            if name not in entries:
                raise HubError(
                    f"{self._name.repository}/{file} lacks tensor {name[:80]!r}, which the index "
                    "says it has; choose another checkpoint"
                )
            entry, start = entries[name], LENGTH_BYTES + len(header)
            wanted.append(
                WantedTensor(
                    file=file,
                    begin=start + entry.begin,
                    end=start + entry.end,
                    part=self._held.part(name, entry),
                )
            )
        return wanted

    def _fetch_chunks(
        self,
        names: set[str],
        peers: PeerStores,
        count: FetchProgress,
        repository: Repository,
        source: HubSettings,
    ) -> None:
        """From the site or the hub. Raises HubError and OSError.

        Nodes that start together need the same tensors, which none has yet. So each takes them in
        an order of its own, and looks again and again what others have fetched meanwhile.
        """
        wanted = sorted(self._wanted(names - self._held.names()), key=place_of)
        chunks = self._chunks(wanted, are_small=peers.are_there)
        if peers.are_there:
            random.shuffle(chunks)
        for number, chunk in enumerate(chunks):
            if peers.are_there and number > 0:
                peers.look_again()
                self._copy(names, peers, count)
            held = self._held.names()
            rest = [each for each in chunk if each.part.name not in held]
            count.begin(SITE_SOURCE if source.is_site else HUB_SOURCE)
            for each in rest:
                count.expect(each.part.name, each.end - each.at)
            for run in runs_of(each for each in rest if not each.is_here):
                fetch_run(repository, run, count)
            header, entries = self._header(chunk[0].file)
            if len(rest) == len(entries):
                self._check_whole(repository, chunk[0].file, header, entries)
            for each in rest:
                each.part.finish()

    def _chunks(
        self, wanted: Sequence[WantedTensor], *, are_small: bool
    ) -> list[list[WantedTensor]]:
        """Those of one file, together if all of the file is wanted, as it has one checksum.

        `wanted` is sorted by place.
        """
        chunks: list[list[WantedTensor]] = []
        for file, group in itertools.groupby(wanted, key=lambda one: one.file):
            of_file = list(group)
            if not are_small or len(of_file) == len(self._header(file)[1]):
                chunks.append(of_file)
                continue
            chunk_bytes = _CHUNK_BYTES  # the first is new
            for one in of_file:
                if chunk_bytes >= _CHUNK_BYTES:
                    chunks.append([])
                    chunk_bytes = 0
                chunks[-1].append(one)
                chunk_bytes += one.end - one.begin
        return chunks

    def _header(self, file: str) -> tuple[bytes, Mapping[str, TensorEntry]]:
        """The header of a file, and the tensors that it lists. Cached in the folder."""
        if file in self._headers:
            return self._headers[file]
        source = f"{self._name.repository}/{file}"
        cached = self.folder / f"{file}.header"
        if cached.is_file():
            content = cached.read_bytes()
            data_bytes, header = int.from_bytes(content[:8], "little"), content[8:]
        else:
            header, data_bytes = self._places.first(
                self._name,
                lambda repository, _: repository.safetensors_header(
                    file, most_bytes=MOST_SMALL_BYTES
                ),
            )
        entries = parse_header(header, data_bytes=data_bytes, source=source)
        if not cached.is_file():
            write_whole(cached, data_bytes.to_bytes(8, "little") + header)
        self._headers[file] = header, entries
        return header, entries

    def _check_whole(
        self,
        repository: Repository,
        file: str,
        header: bytes,
        entries: Mapping[str, TensorEntry],
    ) -> None:
        """Compare a file that is wanted as a whole with the hub's checksum of it, before any of its
        tensors gets its name."""
        repository.file_bytes(file)  # the answer holds the checksum
        expected = repository.sha256(file)
        if expected is None:
            return
        digest = hashlib.sha256(len(header).to_bytes(LENGTH_BYTES, "little") + header)
        parts = [
            self._held.part(name, entry)
            for name, entry in sorted(entries.items(), key=lambda one: (one[1].begin, one[1].end))
        ]
        for data in itertools.chain.from_iterable(part.data() for part in parts):
            digest.update(data)
        if digest.hexdigest() != expected:
            for part in parts:
                part.discard()
            (self.folder / f"{file}.header").unlink(missing_ok=True)
            del self._headers[file]
            raise HubError(
                f"{self._name.repository}/{file} arrived with other bytes than its SHA-256 "
                f"{expected} says; they were deleted: try again, or set HF_ENDPOINT to another hub"
            )

    def _files(self) -> Mapping[str, str]:
        """The file of each tensor. Cached in the folder. Raises CheckpointError."""
        listing = self.folder / LISTING
        if listing.is_file():
            return shard_names(json.loads(listing.read_bytes()), source=str(listing))
        with disk_errors(self.folder):
            files = self._places.first(self._name, self._read_listing)
            write_whole(listing, json.dumps({"weight_map": files}).encode())
        return files

    def _read_listing(self, repository: Repository, _: HubSettings) -> Mapping[str, str]:
        index = read_index(repository)
        return (
            dict.fromkeys(self._header(SINGLE_FILE)[1], SINGLE_FILE) if index is None else index[1]
        )

    def _wait(self, progress: Progress) -> None:
        progress(0, 1)
        self._places.sleep(_PAUSE_S)


def is_elsewhere(checkpoint: str, sources: Sequence[HubSettings]) -> bool:
    """True if `checkpoint` is not on this machine, but one of `sources` may have it."""
    return any(name_at(checkpoint, source) for source in sources) and not Path(checkpoint).exists()


def fetch_if_elsewhere(
    checkpoint: str,
    access: WeightAccess,
    *,
    peers: OpenPeers = no_peers,
    tell: Tell = lambda _: None,
) -> FetchedCheckpoint | None:
    """`fetch_checkpoint` by the peers, the site and the hub; None if `checkpoint` is on this
    machine, or is a path that the site does not have either.

    Raises CheckpointError.
    """
    places = Places(sources=weight_sources(access), peers=peers, tell=tell)
    if not is_elsewhere(checkpoint, places.sources):
        return None
    store = WeightStore(path=Path(access.directory), quota_bytes=access.quota_bytes)
    try:
        return fetch_checkpoint(checkpoint, store, places)
    except MissingFile:
        if parse_hub_name(checkpoint) is None:
            return None  # what reads it says that it does not exist
        raise


def fetch_checkpoint(checkpoint: str, store: WeightStore, places: Places) -> FetchedCheckpoint:
    """The repository `checkpoint` of the first source that has it, with its config.json and
    tokenizer in the store.

    A branch or tag is looked up each time; while a source is away, or HF_HUB_OFFLINE is set, the
    commit that it was last is used. A commit that no source gives is taken from the peers. Raises
    CheckpointError: the last source's, with that of a source that could not be reached.
    """
    named = {source: name_at(checkpoint, source) for source in places.sources}
    names = {source: name for source, name in named.items() if name is not None}
    if not names:
        raise CheckpointError(
            f"{checkpoint[:120]!r} is neither on this machine nor the name of a model on a hub; "
            "give one like owner/model, or a folder"
        )
    places = replace(places, sources=tuple(names))
    try:
        name = of_first(
            places.sources, lambda source: open_name(names[source], store, source, places)
        )
    except (MissingFile, HubUnreachable):
        pinned = next((name for name in names.values() if name.is_pinned), None)
        if pinned is None or not copy_small_files(pinned, store, places):
            raise
        name = pinned
    return FetchedCheckpoint(name, store, places)
