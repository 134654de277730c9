"""Use the site on this machine in a process of its own; what it lacks is said with the remedy."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db.utils import DatabaseError

from helixweb.command_line.failures import CommandFailed
from helixweb.django_loading import django_loaded


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
