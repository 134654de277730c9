"""Brings the database up to date, with a backup before: an upgrade can be undone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from helixweb.operations.backup.folder import SUFFIX
from helixweb.operations.backup.saving import save
from helixweb.operations.schema_version import check_known

KEPT_BACKUPS = 5
# Of PostgreSQL, so that of several hosts that start at once one migrates. Any number will do.
_LOCK = 4_711_001


def pending() -> int:
    """Migrations that are due. Raises NewerDatabase."""
    executor = MigrationExecutor(connection)
    check_known(executor.loader)
    return len(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def migrate_with_backup(*, say: Callable[[str], None]) -> tuple[int, Path | None]:
    """Apply what is due, with a backup before of what the database holds; the number of
    migrations, and the backup if one was needed."""
    with _alone():
        due = pending()
        stored = backup_before("upgrade", say=say) if due and not is_empty() else None
        if due:
            say(f"Applying {due} migrations ...")
            call_command("migrate", interactive=False, verbosity=0)
        return due, stored


def backup_before(what: str, *, say: Callable[[str], None]) -> Path:
    """Keep a backup beside those of the last times; its file."""
    path = backups_folder() / f"before-{what}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}{SUFFIX}"
    say(f"Keeping a backup in {path} ...")
    save(to=path)
    forget_old(path.parent, pattern=f"before-*{SUFFIX}", keep=KEPT_BACKUPS)
    return path


def is_empty() -> bool:
    """True if no migration was ever applied here."""
    return "django_migrations" not in connection.introspection.table_names()


def backups_folder() -> Path:
    """Folder of the automatic backups of the site."""
    folder: Path = settings.DATA_DIR / "backups"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def forget_old(folder: Path, *, pattern: str, keep: int) -> list[Path]:
    """Remove all but the last `keep`; returns those removed."""
    old = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime)[:-keep]
    for path in old:
        path.unlink(missing_ok=True)
    return old


@contextmanager
def _alone() -> Iterator[None]:
    """While inside, no other host migrates this database. SQLite has one host only, and its folder
    is locked by `up`."""
    if connection.vendor != "postgresql":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
        try:
            yield
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])
