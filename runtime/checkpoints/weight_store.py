"""A folder of tensors that were fetched, bounded in size: the least recently used go first.

One folder per repository and commit, in the layout of a checkpoint: config.json, the files of the
tokenizer, one safetensors file per tensor, and an index of those that are there. What reads a
checkpoint reads it as is. Files appear whole, under temporary names until they are.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote

from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.hub_names import HubName
from runtime.checkpoints.safetensors_header import (
    LENGTH_BYTES,
    METADATA,
    TensorEntry,
    parse_header,
    read_header,
)
from runtime.checkpoints.tensor_holders import INDEX_FILE
from runtime.platforms import AlreadyLocked, lock_file
from runtime.whole_file import write_whole

_SUFFIX = ".safetensors"
_PART = ".part"
_COPY = ".copy"  # of another store's file, which is not resumed
_LOCK_FILE = "lock"
_REFS = "refs"
_RESERVED_RATIO = 0.05  # of the disk stays free, but not more than
_MOST_RESERVED_BYTES = 1 << 30
_READ_BYTES = 1 << 20


class StoreFull(CheckpointError):
    """Not enough room for tensors, even without all that are not needed now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightStore:
    """The store below `path`, at most `quota_bytes` of tensors; None: what the disk holds, less
    5 % or 1 GiB."""

    path: Path
    quota_bytes: int | None = None

    @contextmanager
    def locked(self, wait: Callable[[], None]) -> Iterator[None]:
        """While inside, no other process changes the store; `wait` is called until then.

        Raises CheckpointError.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = (self.path / _LOCK_FILE).open("w")
        except OSError as error:
            raise CheckpointError(
                f"{self.path} cannot be written: {error.strerror}; choose another --weights-dir"
            ) from error
        with lock:
            while True:
                try:
                    lock_file(lock)
                    break
                except AlreadyLocked:
                    wait()
            yield

    def folder(self, repository: str, commit: str) -> "WeightFolder":
        """Where tensors of that commit are stored; it need not exist."""
        return WeightFolder(self._home(repository) / commit)

    def last_commit(self, name: HubName) -> str | None:
        """The commit that the revision was when the hub was last asked."""
        try:
            return self._ref(name).read_text(encoding="ascii").strip() or None
        except (FileNotFoundError, UnicodeDecodeError):
            return None

    def remember_commit(self, name: HubName, commit: str) -> None:
        """For `last_commit`. Raises OSError."""
        self._ref(name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._ref(name), commit.encode())

    def make_room(self, needed_bytes: int, *, keep: Collection[Path]) -> None:
        """Delete the least recently used tensors, but those of `keep`, until so much fits.

        Raises StoreFull, having deleted nothing, when it cannot.
        """
        held = sorted((file.stat().st_mtime, file, file.stat().st_size) for file in self._files())
        used = sum(size for _, _, size in held)
        disk = shutil.disk_usage(self.path)
        free = disk.free - min(int(_RESERVED_RATIO * disk.total), _MOST_RESERVED_BYTES)
        short = needed_bytes - free
        if self.quota_bytes is not None:
            short = max(short, used + needed_bytes - self.quota_bytes)
        leaving: list[Path] = []
        for _, file, size in held:
            if short <= 0:
                break
            if file not in keep:
                leaving.append(file)
                short -= size
        if short > 0:
            bound = (
                f"the quota of {self.quota_bytes} bytes (--weights-quota)"
                if self.quota_bytes is not None and free >= needed_bytes
                else f"the disk, of whose {disk.total} bytes {disk.free} are free"
            )
            raise StoreFull(
                f"{needed_bytes} bytes of weights do not fit into {self.path}: {short} bytes too "
                f"many for {bound}; free some, or choose another --weights-dir"
            )
        for folder in {file.parent for file in leaving}:
            WeightFolder(folder).write_index(without=leaving)
        for file in leaving:
            file.unlink(missing_ok=True)

    def _files(self) -> Iterator[Path]:
        yield from self.path.glob(f"*/*/*{_SUFFIX}")
        yield from self.path.glob(f"*/*/*{_SUFFIX}*{_PART}")

    def _home(self, repository: str) -> Path:
        return self.path / repository.replace("/", "--")

    def _ref(self, name: HubName) -> Path:
        return self._home(name.repository) / _REFS / quote(name.revision, safe="")


@dataclass(frozen=True, slots=True)
class WeightFolder:
    """The tensors of one commit that are here, as a checkpoint that the loader reads."""

    path: Path

    def tensor_file(self, name: str) -> Path:
        """Where a tensor is, or would be."""
        return self.path / f"{quote(name, safe='')}{_SUFFIX}"

    def names(self) -> set[str]:
        """Of the tensors that are here."""
        return set(map(_tensor_name, self._files()))

    def write_index(self, *, without: Collection[Path] = ()) -> None:
        """List the tensors that are here, but for those about to be deleted. Raises OSError."""
        weight_map = {
            _tensor_name(file): file.name for file in sorted(self._files()) if file not in without
        }
        write_whole(self.path / INDEX_FILE, json.dumps({"weight_map": weight_map}).encode())

    def touch(self, names: Collection[str]) -> None:
        """Note that these are used now."""
        for name in names:
            with suppress(FileNotFoundError):
                os.utime(self.tensor_file(name))

    def part(self, name: str, entry: TensorEntry) -> "TensorPart":
        """The file of a tensor that is being fetched."""
        return TensorPart(file=self.tensor_file(name), name=name, entry=entry)

    def tensor_bytes(self) -> dict[str, int]:
        """The size of the file of each tensor that is here."""
        sizes = {}
        for file in self._files():
            with suppress(FileNotFoundError):  # deleted meanwhile
                sizes[_tensor_name(file)] = file.stat().st_size
        return sizes

    def copy_in(self, name: str, pieces: Iterable[bytes]) -> None:
        """Store a tensor's file as another store has it, if its data has the recorded SHA-256.

        The file has its name only when it is whole. Raises CheckpointError for other bytes,
        OSError, and what `pieces` raises.
        """
        file = self.tensor_file(name)
        path = file.with_name(file.name + _COPY + _PART)
        try:
            with path.open("wb") as copy:
                for piece in pieces:
                    copy.write(piece)
                copy.flush()
                os.fsync(copy.fileno())
            _check_copy(path, name)
            path.replace(file)
        finally:
            path.unlink(missing_ok=True)
        file.with_name(file.name + _PART).unlink(missing_ok=True)  # what a hub sent of it

    def _files(self) -> Iterator[Path]:
        return self.path.glob(f"*{_SUFFIX}")


def _tensor_name(file: Path) -> str:
    return unquote(file.name.removesuffix(_SUFFIX))


def _check_copy(path: Path, name: str) -> None:
    """Raises CheckpointError unless the file holds this tensor alone, as its checksum says."""
    with path.open("rb") as file:
        header, data_bytes = read_header(file, source=name)
        entries = parse_header(header, data_bytes=data_bytes, source=name)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    metadata = json.loads(header).get(METADATA)
    recorded = metadata.get("sha256") if isinstance(metadata, dict) else None
    if entries.keys() != {name} or recorded != digest:
        raise CheckpointError(f"{name[:80]!r} arrived with other bytes than its SHA-256 says")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPart:
    """A tensor on its way to `file`: a header without checksum, and the first bytes of its data."""

    file: Path
    name: str
    entry: TensorEntry

    @property
    def path(self) -> Path:
        """Where it is until it is whole."""
        return self.file.with_name(self.file.name + _PART)

    @property
    def data_bytes(self) -> int:
        """Of the whole tensor."""
        return self.entry.end - self.entry.begin

    @property
    def file_bytes(self) -> int:
        """Of the whole file."""
        return len(self._header("0" * 64)) + self.data_bytes

    def held_bytes(self) -> int:
        """Data that a fetch before this one stored."""
        try:
            held = self.path.stat().st_size - len(self._header("0" * 64))
        except FileNotFoundError:
            return 0
        return min(max(0, held), self.data_bytes)

    @contextmanager
    def appending(self) -> Iterator[BinaryIO]:
        """Open for the data that comes next. Raises OSError."""
        held = self.held_bytes()
        with self.path.open("r+b" if held else "wb") as file:
            if not held:
                file.write(self._header("0" * 64))
            file.seek(len(self._header("0" * 64)) + held)
            yield file

    def data(self) -> Iterator[bytes]:
        """What is stored of it so far."""
        with self.path.open("rb") as file:
            file.seek(len(self._header("0" * 64)))
            while part := file.read(_READ_BYTES):
                yield part

    def finish(self) -> None:
        """Give the whole tensor its checksum and its name. Raises OSError."""
        with self.path.open("r+b") as file:
            file.seek(len(self._header("0" * 64)))
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            file.write(self._header(digest))
            file.flush()
            os.fsync(file.fileno())
        self.path.replace(self.file)

    def discard(self) -> None:
        """Forget what is stored of it."""
        self.path.unlink(missing_ok=True)

    def _header(self, digest: str) -> bytes:
        told = {
            "dtype": self.entry.dtype,
            "shape": list(self.entry.shape),
            "data_offsets": [0, self.data_bytes],
        }
        text = json.dumps({METADATA: {"sha256": digest}, self.name: told}).encode()
        text += b" " * (-len(text) % 8)  # numbers lie aligned
        return len(text).to_bytes(LENGTH_BYTES, "little") + text
