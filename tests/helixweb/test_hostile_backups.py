"""Hostile backups are refused, and nothing of them stays."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helixweb.operations.backup.folder import NoBackup
from helixweb.operations.backup.sealing import Seal, WrongPassphrase
from tests.helixweb.test_backup_file import read, rewritten, write

PASSPHRASE = "correct horse"
Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["tables"][0].update(label="no.such"),
        lambda m: m["tables"][0].update(label="../../etc/passwd"),
        lambda m: m["files"][0].update(mode=-1),
        lambda m: m["files"][0].update(mode=2**70),
        lambda m: m.update(salt="not hexadecimal"),
        lambda m: m.update(salt="00"),
        lambda m: m.update(migrations={"../x": ["0001"]}),
    ],
)
def test_a_manifest_that_says_what_cannot_be_is_refused(change: Change, backup: Path) -> None:
    with zipfile.ZipFile(backup) as old:
        manifest = json.loads(old.read("manifest.json"))
    change(manifest)
    rewritten(backup, **{"manifest.json": json.dumps(manifest).encode()})
    with pytest.raises((NoBackup, WrongPassphrase)):
        read(backup, passphrase=PASSPHRASE)


def test_a_manifest_that_is_nested_without_end_is_refused(backup: Path) -> None:
    rewritten(backup, **{"manifest.json": b"[" * 200_000})
    with pytest.raises(NoBackup):
        read(backup)


@pytest.mark.parametrize("member", ["tables/common", "files/secret_key"])
def test_a_member_that_unfolds_to_far_more_than_it_is_refused(member: str, backup: Path) -> None:
    with zipfile.ZipFile(backup) as old:
        content = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(backup, "w", zipfile.ZIP_DEFLATED) as new:
        for name, value in content.items():
            new.writestr(name, bytes((64 << 20) + 1) if name.startswith(member) else value)
    assert backup.stat().st_size < 1 << 20
    with pytest.raises(NoBackup, match="unfolds"):
        read(backup)


@pytest.mark.parametrize(("field", "value"), [("flag_bits", 1), ("compress_type", 99)])
def test_a_member_of_other_programs_is_refused(field: str, value: int, backup: Path) -> None:
    """One with a password of zip's own, or compressed in a way that is not known here."""
    with zipfile.ZipFile(backup) as file:
        start = file.start_dir
    raw = bytearray(backup.read_bytes())
    offset = {"flag_bits": 8, "compress_type": 10}[field]
    for header, place in ((b"PK\x01\x02", offset), (b"PK\x03\x04", offset - 2)):
        found = raw.find(header, start if header == b"PK\x01\x02" else 0)
        raw[found + place : found + place + 2] = value.to_bytes(2, "little")
    backup.write_bytes(bytes(raw))
    with pytest.raises(NoBackup):
        read(backup)


def test_a_sealed_backup_without_its_mark_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "site.helix"
    write(path, seal=Seal.fresh(PASSPHRASE))
    rewritten(path, **{"manifest.mark": None})
    with pytest.raises((NoBackup, WrongPassphrase)):
        read(path, passphrase=PASSPHRASE)
