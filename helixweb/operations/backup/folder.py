"""The files of the data folder that a site cannot do without: secrets, and who it is."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from helixweb.command_line.failures import CommandFailed

# Beside files at its top, such as secret_key, these folders with all that is in them.
KEPT_FOLDERS = ("coordinator", "secrets", "uploads")
# Made again by what needs them, or in the backup as tables.
_LEFT_OUT = ("celerybeat-schedule", "helixweb.sqlite3", "lock", ".")
_MOST_BYTES_AT_TOP = 1 << 20
SUFFIX = ".helix"  # of backups


class NoBackup(CommandFailed):
    """Not a backup, a damaged one, or one that this version cannot read."""


def kept_files(data_dir: Path) -> Iterator[Path]:
    """Files of the data folder to back up, in order."""
    for path in sorted(data_dir.iterdir()):
        if path.name in KEPT_FOLDERS and path.is_dir():
            yield from (found for found in sorted(path.rglob("*")) if _is_kept(found))
        elif _is_kept(path) and path.stat().st_size <= _MOST_BYTES_AT_TOP:
            yield path


def checked_path(path: str) -> PurePosixPath:
    """A path within the data folder. Raises NoBackup: a backup may come from anywhere."""
    pure = PurePosixPath(path)
    inside = pure.parts and not pure.is_absolute() and ".." not in pure.parts
    if not inside or "\\" in path or "\0" in path:
        raise NoBackup(f"the backup holds a file outside of the data folder: {path!r}")
    return pure


@contextmanager
def whole_file(path: Path, *, mode: int = 0o600) -> Iterator[BinaryIO]:
    """Write a file that appears whole or not at all, readable by its owner at most.

    Removes what killed processes left of this file, and of other backups beside it.
    """
    _remove_unfinished(path)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until this process ends, however it does
            yield file
            file.flush()
            os.fsync(file.fileno())
        fresh.chmod(mode & 0o700)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _remove_unfinished(path: Path) -> None:
    unfinished = re.compile(rf"\.({re.escape(path.name)}|.+{re.escape(SUFFIX)})\.[0-9]+")
    for left in path.parent.iterdir():
        if unfinished.fullmatch(left.name) and left.is_file():
            with suppress(OSError), left.open("rb") as file:  # being written, or of another user
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.unlink(missing_ok=True)


def _is_kept(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and not path.name.startswith(_LEFT_OUT)
