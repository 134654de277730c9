"""The file of a backup: a zip of JSON lines, files and a manifest, which is its last member.

Without a passphrase any zip program opens it; with one, members are sealed and the manifest,
which names tables, counts and checksums, is readable but cannot be changed unseen.
"""

import hashlib
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from helixweb.operations.backup.folder import NoBackup, whole_file
from helixweb.operations.backup.sealing import Seal, WrongPassphrase

FORMAT = "helixweb.backup/1"
MANIFEST, MARK = "manifest.json", "manifest.mark"
_PIECE_BYTES = 1 << 20
_MOST_MANIFEST_BYTES = 16 << 20
# Rows of a site are a hundredth of their text at the least; zip allows a thousandth.
_MOST_UNFOLDED, _ALWAYS_READ_BYTES = 400, 64 << 20
_LONGEST_LINE_BYTES = 64 << 20
# What the readers of zip raise for a member that is damaged, sealed by zip itself, or compressed in
# a way that is not known here.
_UNREADABLE = (KeyError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error)


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Table(_Model):
    """`label`: app.model in lower case; `last_id`: what the next row's number comes after."""

    label: str
    columns: list[str]
    rows: int = Field(ge=0)
    sha256: str
    last_id: int | None = None


class KeptFile(_Model):
    """A file of the data folder, by its path there."""

    path: str
    sha256: str
    mode: int = Field(ge=0, lt=1 << 16)


class Manifest(_Model):
    """The manifest of a backup's content."""

    format: str
    version: str
    created_at: str
    database: str
    migrations: dict[str, list[str]]
    tables: list[Table]
    files: list[KeptFile]
    salt: str | None = Field(default=None, pattern=r"^[0-9a-f]{32}$")

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)


class ArchiveWriter:
    """Members one after the other, the manifest at last. The file appears whole or not at all."""

    def __init__(self, file: zipfile.ZipFile, seal: Seal | None) -> None:
        self._zip, self._seal = file, seal

    @classmethod
    @contextmanager
    def open(cls, path: Path, *, seal: Seal | None) -> Iterator["ArchiveWriter"]:
        """Within, members can be written."""
        with whole_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            yield cls(archive, seal)

    def add(self, name: str, pieces: Iterable[bytes]) -> tuple[str, int]:
        """Write a member; the sha256 of its content, and the number of pieces."""
        info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
        info.external_attr = 0o600 << 16
        info.compress_type = zipfile.ZIP_STORED if self._seal else zipfile.ZIP_DEFLATED
        digest, count = hashlib.sha256(), 0

        def content() -> Iterator[bytes]:
            nonlocal count
            for piece in pieces:
                digest.update(piece)
                count += 1
                yield piece

        sealed = self._seal.sealed(content(), member=name) if self._seal else content()
        with self._zip.open(info, "w", force_zip64=True) as file:
            file.writelines(sealed)
        return digest.hexdigest(), count

    def finish(self, manifest: Manifest) -> None:
        """The last member."""
        content = manifest.model_dump_json(indent=1).encode()
        self._zip.writestr(MANIFEST, content)
        if self._seal is not None:
            self._zip.writestr(MARK, self._seal.mark(content))


class ArchiveReader:
    """Reads a backup; `manifest` was checked, members are checked when they are read."""

    def __init__(self, file: zipfile.ZipFile, manifest: Manifest, seal: Seal | None) -> None:
        self._zip, self.manifest, self._seal = file, manifest, seal

    @classmethod
    @contextmanager
    def open(cls, path: Path, *, passphrase: str = "") -> Iterator["ArchiveReader"]:
        """Open a backup. Raises NoBackup, WrongPassphrase."""
        try:
            file = zipfile.ZipFile(path)
        except FileNotFoundError as error:
            raise NoBackup(f"{path} does not exist") from error
        except (zipfile.BadZipFile, OSError) as error:
            raise NoBackup(f"{path} is no backup, or cut off: {error}") from error
        with file:
            manifest, content = _manifest(file, path)
            seal = _seal_of(manifest, passphrase)
            if seal is not None:
                seal.check_mark(content, _mark(file, path))
            yield cls(file, manifest, seal)

    def pieces(self, name: str) -> Iterator[bytes]:
        """The content of a member. Raises NoBackup, WrongPassphrase."""
        try:
            info = self._zip.getinfo(name)
            most = max(_ALWAYS_READ_BYTES, _MOST_UNFOLDED * info.compress_size)
            if info.file_size > most:
                raise NoBackup(
                    f"{name} unfolds to {info.file_size:,} bytes of {info.compress_size:,}; no "
                    "backup of a site does"
                )
            with self._zip.open(info) as file:
                if self._seal is not None:
                    yield from self._seal.pieces(cast(BinaryIO, file), member=name)
                else:
                    while piece := file.read(_PIECE_BYTES):
                        yield piece
        except _UNREADABLE as error:
            raise NoBackup(f"the backup is damaged at {name}: {error}") from error

    def verify(self) -> None:
        """Check that every member exists and matches the manifest. Raises NoBackup,
        WrongPassphrase."""
        expected = {table_member(table.label): table.sha256 for table in self.manifest.tables}
        expected |= {file_member(file.path): file.sha256 for file in self.manifest.files}
        for name, sha256 in expected.items():
            found = hashlib.sha256()
            for piece in self.pieces(name):
                found.update(piece)
            if found.hexdigest() != sha256:
                raise NoBackup(f"the backup is damaged: {name} is not what the manifest says")

    def lines(self, name: str) -> Iterator[bytes]:
        """A member by lines. Raises NoBackup, WrongPassphrase."""
        rest = b""
        for piece in self.pieces(name):
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines
            if len(rest) > _LONGEST_LINE_BYTES:
                raise NoBackup(f"{name} has a row of more than {_LONGEST_LINE_BYTES:,} bytes")
        if rest:
            yield rest


def table_member(label: str) -> str:
    """Name of the member with the rows of a table."""
    return f"tables/{label}.jsonl"


def file_member(path: str) -> str:
    """Name of the member with a file of the data folder."""
    return f"files/{path}"


def _manifest(file: zipfile.ZipFile, path: Path) -> tuple[Manifest, bytes]:
    try:
        if file.getinfo(MANIFEST).file_size > _MOST_MANIFEST_BYTES:
            raise NoBackup(f"{path} is no backup: its manifest is too large")
        content = file.read(MANIFEST)
        form = json.loads(content).get("format")
    except (*_UNREADABLE, AttributeError) as error:  # RecursionError is a RuntimeError
        raise NoBackup(f"{path} is no backup of HelixWeb: it has no {MANIFEST}") from error
    if form != FORMAT:
        raise NoBackup(f"{path} has the format {form!r}; this version reads {FORMAT!r}")
    try:
        return Manifest.model_validate_json(content), content
    except ValidationError as error:
        raise NoBackup(f"{path} has a damaged manifest: {error.errors()[0]['msg']}") from error


def _mark(file: zipfile.ZipFile, path: Path) -> str:
    try:
        return file.read(MARK).decode("ascii", "replace")
    except _UNREADABLE as error:
        raise NoBackup(f"{path} is damaged: it has no {MARK}, and is encrypted") from error


def _seal_of(manifest: Manifest, passphrase: str) -> Seal | None:
    if manifest.salt is None:
        return None
    if not passphrase:
        raise WrongPassphrase(
            "this backup is encrypted; give its passphrase with --passphrase-file or "
            "HELIX_BACKUP_PASSPHRASE"
        )
    return Seal(passphrase, salt=bytes.fromhex(manifest.salt))
