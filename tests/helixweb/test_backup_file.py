"""The file of a backup: whole or refused, readable with its passphrase alone."""

import errno
import io
import json
import os
import zipfile
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helixweb.command_line import exit_codes
from helixweb.command_line.failures import CommandFailed
from helixweb.command_line.main import main
from helixweb.command_line.surroundings import Surroundings
from helixweb.operations.backup import archive as archives
from helixweb.operations.backup import stores
from helixweb.operations.backup.archive import (
    ArchiveReader,
    ArchiveWriter,
    KeptFile,
    Manifest,
    Table,
)
from helixweb.operations.backup.folder import NoBackup, checked_path, kept_files, whole_file
from helixweb.operations.backup.restoring import check
from helixweb.operations.backup.sealing import PIECE_BYTES, Seal, WrongPassphrase
from helixweb.operations.backup.stores import FolderStore, fresh_name, store_of
from tests.answering import answering
from tests.helixweb import object_storage

SALT = bytes(16)


@pytest.fixture(scope="module")
def seal() -> Seal:
    return Seal("correct horse", salt=SALT)


def sealed(seal: Seal, content: bytes, *, member: str = "a") -> bytes:
    return b"".join(seal.sealed([content], member=member))


def opened(seal: Seal, stored: bytes, *, member: str = "a") -> bytes:
    return b"".join(seal.pieces(io.BytesIO(stored), member=member))


def incompressible(size: int) -> bytes:
    import random

    return random.Random(7).randbytes(size)


@given(content=st.binary(max_size=2000))
def test_what_is_sealed_comes_out_as_it_was(seal: Seal, content: bytes) -> None:
    assert opened(seal, sealed(seal, content)) == content


def test_pieces_cannot_be_left_out_moved_or_changed(seal: Seal) -> None:
    content = incompressible(3 * PIECE_BYTES)
    stored = sealed(seal, content)
    assert opened(seal, stored) == content
    piece = PIECE_BYTES + 16 + 8  # its tag and header
    for changed in (
        stored[:piece],
        stored[piece:],
        stored[: len(stored) - 5],
        stored[piece : 2 * piece] + stored[:piece] + stored[2 * piece :],
        stored[:100] + bytes([stored[100] ^ 1]) + stored[101:],
        b"",
    ):
        with pytest.raises(WrongPassphrase):
            opened(seal, changed)


def test_a_member_cannot_stand_for_another(seal: Seal) -> None:
    with pytest.raises(WrongPassphrase):
        opened(seal, sealed(seal, b"x", member="a"), member="b")


def write(path: Path, *, seal: Seal | None) -> None:
    """A backup of one table and one file."""
    with ArchiveWriter.open(path, seal=seal) as writer:
        rows, _ = writer.add("tables/common.event.jsonl", [b'[1,"x"]\n[2,"y"]\n'])
        file, _ = writer.add("files/secret_key", [b"hush"])
        writer.finish(
            Manifest(
                format=archives.FORMAT,
                version="1",
                created_at="2026-01-01T00:00:00+00:00",
                database="sqlite",
                migrations={"common": ["0001_initial"]},
                tables=[
                    Table(
                        label="common.event",
                        columns=["id", "topic"],
                        rows=2,
                        sha256=rows,
                        last_id=2,
                    )
                ],
                files=[KeptFile(path="secret_key", sha256=file, mode=0o600)],
                salt=seal.salt.hex() if seal else None,
            )
        )


def read(path: Path, *, passphrase: str = "") -> None:
    """As far as a restoration reads before it writes."""
    with ArchiveReader.open(path, passphrase=passphrase) as archive:
        check(archive)


def test_a_backup_is_read_as_it_was_written(tmp_path: Path, seal: Seal) -> None:
    for given_seal, passphrase in ((None, ""), (seal, "correct horse")):
        path = tmp_path / "site.helix"
        write(path, seal=given_seal)
        assert path.stat().st_mode & 0o077 == 0
        with ArchiveReader.open(path, passphrase=passphrase) as archive:
            archive.verify()
            lines = list(archive.lines("tables/common.event.jsonl"))
            assert lines == [b'[1,"x"]', b'[2,"y"]']
            assert b"".join(archive.pieces("files/secret_key")) == b"hush"
            assert archive.manifest.rows == 2


def test_without_its_passphrase_only_the_manifest_is_readable(tmp_path: Path, seal: Seal) -> None:
    path = tmp_path / "site.helix"
    write(path, seal=seal)
    assert b"hush" not in path.read_bytes()
    for passphrase, told in (("", "--passphrase-file"), ("wrong", "does not open")):
        with pytest.raises(WrongPassphrase, match=told):
            read(path, passphrase=passphrase)
    with zipfile.ZipFile(path) as plain:
        assert json.loads(plain.read("manifest.json"))["tables"][0]["rows"] == 2


def rewritten(path: Path, **members: bytes | None) -> None:
    """Change members (None: leave out) of a backup, as somebody might who cannot make one."""
    with zipfile.ZipFile(path) as old:
        content = {name: old.read(name) for name in old.namelist()}
    for name, value in members.items():
        full = next(known for known in content if known.endswith(name) or name in known)
        if value is None:
            del content[full]
        else:
            content[full] = value
    with zipfile.ZipFile(path, "w") as new:
        for name, value in content.items():
            new.writestr(name, value)


def change_manifest(path: Path, old: bytes, new: bytes) -> None:
    with zipfile.ZipFile(path) as file:
        manifest = file.read("manifest.json").replace(old, new)
    rewritten(path, **{"manifest.json": manifest})


def test_a_manifest_that_was_changed_is_refused(tmp_path: Path, seal: Seal) -> None:
    path = tmp_path / "site.helix"
    write(path, seal=seal)
    change_manifest(path, b'"rows": 2', b'"rows": 1')
    with pytest.raises(WrongPassphrase, match="changed"):
        read(path, passphrase="correct horse")


@pytest.mark.parametrize("value", [b'[1,"x"]\n', None])
def test_a_member_unlike_its_manifest_entry_is_refused(value: bytes | None, backup: Path) -> None:
    rewritten(backup, **{"tables/common": value})
    refused = pytest.raises(NoBackup, match=r"damaged.*common\.event")
    with refused, ArchiveReader.open(backup) as archive:
        archive.verify()


def test_what_is_no_backup_is_refused_by_its_name(backup: Path, tmp_path: Path) -> None:
    text, empty = (tmp_path / name for name in ("text", "empty.zip"))
    text.write_text("hello")
    with zipfile.ZipFile(empty, "w") as file:
        file.writestr("other", "x")
    backup.write_bytes(backup.read_bytes()[:-40])
    for path in (text, empty, backup, tmp_path / "missing"):
        with pytest.raises(NoBackup, match=str(path)):
            read(path)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (b"backup/1", b"backup/9", r"backup/9.*backup/1"),
        (b"0001_initial", b"0099_new", r"HelixWeb 1.*common\.0099_new.*install"),
    ],
)
def test_newer_formats_are_refused_by_name(old: bytes, new: bytes, told: str, backup: Path) -> None:
    change_manifest(backup, old, new)
    with pytest.raises(NoBackup, match=told):
        read(backup)


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "", "a\\b", "a\0b"])
def test_a_file_of_a_backup_never_leaves_the_data_folder(path: str) -> None:
    with pytest.raises(NoBackup, match="outside"):
        checked_path(path)


def test_secrets_and_uploads_are_kept_and_what_is_made_anew_is_not(tmp_path: Path) -> None:
    for name in (
        "secret_key", "pepper", "helixweb.sqlite3", "helixweb.sqlite3-wal", "lock.web", ".hidden",
        "celerybeat-schedule.dat", "coordinator/identity.json", "coordinator/curve.key",
        "coordinator/lock", "uploads/a/b.json", "queue/messages/x.msg", "logs/web.log",
        "backups/old.helix", "models/big.safetensors",
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to("/etc/passwd")
    kept = {path.relative_to(tmp_path).as_posix() for path in kept_files(tmp_path)}
    assert kept == {
        "secret_key", "pepper", "coordinator/identity.json", "coordinator/curve.key",
        "uploads/a/b.json",
    }  # fmt: skip


def test_a_restored_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    with whole_file(tmp_path / "key", mode=0o644) as file:
        file.write(b"x")
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def test_what_a_killed_backup_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    killed = tmp_path / ".helixweb-20261101T030000Z.helix.4711"
    others = tmp_path / ".notes.4711", tmp_path / ".helixweb-mine.helix.bak"
    for path in (killed, *others):
        path.write_bytes(b"x")
    with whole_file(tmp_path / "a.helix") as file:
        file.write(b"a")
        with whole_file(tmp_path / "b.helix"):  # of another process: it is being written
            pass
    assert {path.name for path in tmp_path.iterdir()} == {
        "a.helix", "b.helix", *(path.name for path in others),
    }  # fmt: skip


def test_names_of_backups_are_in_the_order_of_time(tmp_path: Path) -> None:
    names = [fresh_name(datetime(2026, 11, day, 3, tzinfo=UTC)) for day in (1, 2, 12)]
    assert names == sorted(names)
    store, _ = store_of(f"{tmp_path}/kept/")
    (tmp_path / "kept").mkdir()
    for name in (*names, "mine.helix"):
        (tmp_path / "kept" / name).touch()
    assert stores.forget_old(store, keep=2) == names[:1]
    assert store.names() == names[1:]
    assert (tmp_path / "kept" / "mine.helix").exists()


def test_object_storage_keeps_lists_and_forgets_backups(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(object_storage.ObjectStorage()) as storage:
        _credentials(monkeypatch, storage.url, object_storage.ACCESS_KEY)
        store, _ = store_of("s3://bucket/sites/one/")
        names = [fresh_name(datetime(2026, 11, day, tzinfo=UTC)) for day in range(1, 6)]
        for name in names:
            with store.writing(name) as path:
                path.write_bytes(b"content")
        assert store.address(names[0]) == f"s3://bucket/sites/one/{names[0]}"
        assert store.names() == names
        assert stores.forget_old(store, keep=2) == names[:3]
        assert store.names() == names[3:]
        fetched, name = store_of(f"s3://bucket/sites/one/{names[4]}")
        with fetched.reading(name) as path:
            assert path.read_bytes() == b"content"
        refused = pytest.raises(CommandFailed, match="bucket")
        with refused, store.reading("helixweb-none.helix"):
            pass


def test_object_storage_refusal_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(object_storage.ObjectStorage()) as storage:
        _credentials(monkeypatch, storage.url, "stranger")
        with pytest.raises(CommandFailed, match="AccessDenied"):
            store_of("s3://bucket/")[0].names()


def test_copies_are_private_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, seen = FolderStore(tmp_path / "open"), []
    (tmp_path / "open").mkdir(mode=0o755)

    def fill(descriptor: int) -> None:
        seen.extend(path.stat().st_mode & 0o777 for path in (tmp_path / "open").iterdir())
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", fill)
        with (
            pytest.raises(CommandFailed, match=r"a\.helix cannot be written: .*No space left"),
            store.writing("a.helix") as path,
        ):
            write(path, seal=None)
    assert seen == [0o600]
    assert list((tmp_path / "open").iterdir()) == []
    with store.writing("a.helix") as path:
        write(path, seal=None)
    (made,) = (tmp_path / "open").iterdir()
    assert (made.name, made.stat().st_mode & 0o777) == ("a.helix", 0o600)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["backup", "{}/x", "--passphrase-file", "{}/pass"], "pass, line 1: this is no text"),
        (["restore", "{}/nothing"], "does not exist"),
        (["up", "--port", "8000", "--tls-key", "{}/x"], "give both"),
    ],
)
def test_json_faults_are_objects(command: list[str], told: str, tmp_path: Path, db: None) -> None:
    (tmp_path / "pass").write_bytes(b"\xff")
    err = StringIO()
    around = Surroundings(out=StringIO(), err=err, environ={"HELIX_DATA_DIR": str(tmp_path)})
    words = [word.format(tmp_path) for word in command]
    assert main([*words, "--json"], surroundings=around) == exit_codes.FAILED
    error = json.loads(err.getvalue())["error"]
    assert told in error["detail"]
    assert error["exit_code"] == exit_codes.FAILED


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("ftp://x/y", "s3://BUCKET"),
        ("s3:///key/", "names no bucket"),
        ("s3://bucket/folder", "end a folder with a slash"),
    ],
)
def test_a_target_that_is_none_is_refused_with_what_is(target: str, told: str) -> None:
    with pytest.raises(CommandFailed, match=told):
        store_of(target)


def _credentials(monkeypatch: pytest.MonkeyPatch, url: str, key: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("AWS_REGION", "here")
