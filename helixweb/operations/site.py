"""Base of commands that work on the site's own data in their own process."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, TypeAlias

from django.core.exceptions import ImproperlyConfigured
from django.db.utils import DatabaseError

from helixweb.command_line.command import Act, argument
from helixweb.command_line.failures import BadUsage, CommandFailed
from helixweb.command_line.surroundings import Surroundings
from helixweb.command_line.text_files import text_of
from helixweb.django_loading import django_loaded

PASSPHRASE = "HELIX_BACKUP_PASSPHRASE"  # noqa: S105 - the variable's name
Say: TypeAlias = Callable[[str], None]

DATA_OPTION = argument(
    "--data", type=Path, metavar="DIR", help="data folder of the site (HELIX_DATA_DIR)"
)


def passphrase_of(around: Surroundings, path: Path | None) -> str:
    """The file's first line, else the variable; empty: none was given. Other users of the machine
    see command lines. Raises CommandFailed, OSError."""
    if path is None:
        return around.environ.get(PASSPHRASE, "")
    try:
        first = text_of(path).partition("\n")[0].strip()
    except BadUsage as error:
        raise CommandFailed(str(error)) from error
    if not first:
        raise CommandFailed(f"{path} is empty; put the passphrase on its first line")
    return first


@contextmanager
def opened(data: Path | None = None) -> Iterator[None]:
    """Within, Django knows the site with that data folder, else that of the environment. Raises
    CommandFailed for what its operator must change."""
    if data is not None:
        os.environ["HELIX_DATA_DIR"] = str(data.expanduser().resolve())
    with _said_plainly():
        with django_loaded():
            pass
        yield


@contextmanager
def _said_plainly() -> Iterator[None]:
    """Raise CommandFailed, with the remedy, for a database or settings that cannot be used."""
    try:
        yield
    except ImproperlyConfigured as error:
        text = str(error)
        if "psycopg" in text:
            text = "DATABASE_URL names PostgreSQL; install its driver: "
            text += "pip install 'helixweb[postgres]'"
        raise CommandFailed(text) from error
    except DatabaseError as error:
        raise CommandFailed(_database_fault(error)) from error


def _database_fault(error: DatabaseError) -> str:
    from django.conf import settings

    said = " ".join(str(error).split())
    database: dict[str, Any] = settings.DATABASES["default"]
    if database["ENGINE"].endswith("sqlite3"):
        path = Path(database["NAME"])
        remedy = "make room on its disk" if "full" in said else "check the rights of its folder"
        return f"The database {path} cannot be used: {said}; {remedy}."
    return f"The database does not answer: {said}; start it, or check DATABASE_URL."


def on_site(act: Act) -> Act:
    """Have the function work on the site in `--data`, and import what needs Django itself."""

    @wraps(act)
    def opened_first(*given: Any, data: Path | None = None, **named: Any) -> int | None:
        with opened(data):
            return act(*given, **named)

    return opened_first


def progress(around: Surroundings) -> Say:
    """Lines to stderr on a terminal, none for a script."""
    return around.warn if around.err.isatty() else lambda text: None
