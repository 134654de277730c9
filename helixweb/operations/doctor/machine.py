"""This machine: Python, packages, the data folder and its disk."""

import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from helixweb.operations.doctor.findings import Finding, failed, note, ok, warning

OLDEST_PYTHON = (3, 11)
LITTLE_BYTES, TOO_LITTLE_BYTES = 2 << 30, 200 << 20


def python(version: tuple[int, int, int] = sys.version_info[:3]) -> Iterator[Finding]:
    """New enough."""
    text = ".".join(map(str, version))
    if version[:2] < OLDEST_PYTHON:
        remedy = "make a virtual environment of Python 3.11 or newer and install there"
        yield failed("python", f"Python {text} is too old", remedy)
    else:
        yield ok("python", f"Python {text}")


def packages(database: str) -> Iterator[Finding]:
    """Check packages that the settings and the coordinator need beyond the base install."""
    wanted: list[tuple[str, str, str, Callable[[str, str, str], Finding]]] = [
        ("tokenizers", "the coordinator answers no chats", "coordinator", note)
    ]
    if database == "postgresql":
        wanted.append(("psycopg", "DATABASE_URL names PostgreSQL", "postgres", failed))
    for package, why, extra, grade in wanted:
        if find_spec(package) is None:
            said = f"{package} is not installed: {why}"
            yield grade("packages", said, f"pip install 'helixweb[{extra}]'")
        else:
            yield ok("packages", f"{package} is installed")


def data_folder(path: Path, *, user_id: int | None = None) -> Iterator[Finding]:
    """Check that the data folder exists, is ours, and is not readable by other users."""
    mine = os.getuid() if user_id is None else user_id
    if not path.is_dir():
        yield note("data folder", f"{path} does not exist yet", "`helixweb up` makes it")
        return
    found = path.stat()
    if not os.access(path, os.W_OK | os.X_OK):
        yield failed("data folder", f"{path} cannot be written to", f"chown -R {mine} {path}")
    elif found.st_uid != mine:
        yield warning(
            "data folder",
            f"{path} is of user {found.st_uid}, and this is user {mine}",
            "run doctor and up as the user the data belong to",
        )
    elif found.st_mode & 0o077:
        mode = oct(stat.S_IMODE(found.st_mode))[2:]
        yield warning("data folder", f"{path} is open to others ({mode})", f"chmod 700 {path}")
    else:
        yield ok("data folder", str(path))
    secret = path / "secret_key"
    if secret.exists() and secret.stat().st_mode & 0o077:
        yield failed("secret key", f"{secret} is readable by others", f"chmod 600 {secret}")


def disk(path: Path, *, free_bytes: int | None = None) -> Iterator[Finding]:
    """Room for the database to grow."""
    if not path.is_dir():
        return
    free = shutil.disk_usage(path).free if free_bytes is None else free_bytes
    said = f"{free / 1e9:.1f} GB free at {path}"
    remedy = "make room, or move the data folder to a larger disk (HELIX_DATA_DIR)"
    if free < TOO_LITTLE_BYTES:
        yield failed("disk", said, remedy)
    elif free < LITTLE_BYTES:
        yield warning("disk", said, remedy)
    else:
        yield ok("disk", said)
