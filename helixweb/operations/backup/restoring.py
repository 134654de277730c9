"""Put a site back as a backup has it: verified first, then whole or not at all.

On SQLite a new file takes the place of the old one at the end; on PostgreSQL all happens in one
transaction. A backup of an older version is loaded as it was and migrated then.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone

from helixweb.command_line import exit_codes
from helixweb.command_line.failures import CommandFailed
from helixweb.operations.backup import tables
from helixweb.operations.backup.archive import (
    ArchiveReader,
    Manifest,
    file_member,
    table_member,
)
from helixweb.operations.backup.folder import NoBackup, checked_path, whole_file
from helixweb.operations.migrating import backup_before, is_empty
from helixweb.operations.models import Pulse
from helixweb.operations.schema_version import unknown_migrations

# A worker that beat so lately may still run.
_LIVELY = timedelta(seconds=15)
_BESIDE = ("-wal", "-shm", "-journal")


class RestoreRefused(CommandFailed):
    """The restore was refused and nothing changed; the message says what to do."""

    exit_code = exit_codes.CONFLICT


def restore(
    path: Path,
    *,
    passphrase: str = "",
    overwrite: bool = False,
    data_dir: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Manifest:
    """Restore a backup; returns its manifest. Raises NoBackup, WrongPassphrase, RestoreRefused,
    and errors of the database."""
    folder = data_dir or settings.DATA_DIR
    with ArchiveReader.open(path, passphrase=passphrase) as archive:
        say(f"Verifying {path} ...")
        check(archive)
        has_data = not is_empty()
        if has_data:
            _check_may_overwrite(overwrite)
        _check_files(archive.manifest, folder, overwrite=overwrite or not has_data)
        if has_data:
            backup_before("restore", say=say)
        with ExitStack() as files, _database_replaced():
            _load(archive, say=say)
            _write_files(archive, folder, files)
        return archive.manifest


def check(archive: ArchiveReader) -> None:
    """Check that a backup is complete and readable by this version. Raises NoBackup,
    WrongPassphrase."""
    manifest = archive.manifest
    loader = MigrationLoader(None)
    applied = {(app, name) for app, names in manifest.migrations.items() for name in names}
    strange = unknown_migrations(loader, applied)
    missing_apps = sorted(set(manifest.migrations) - {app for app, _ in loader.graph.nodes})
    if strange or missing_apps:
        raise NoBackup(
            f"the backup was made by HelixWeb {manifest.version}, which is newer than this one: "
            f"{(strange or missing_apps)[0]} is unknown here; install that version first"
        )
    for kept in manifest.files:
        checked_path(kept.path)
    archive.verify()


def _check_may_overwrite(overwrite: bool) -> None:
    if not overwrite:
        raise RestoreRefused(
            "there is a site in this database already; --force replaces it (a backup of it is kept)"
        )
    try:
        lively = Pulse.objects.filter(at__gt=timezone.now() - _LIVELY).exists()
    except DatabaseError:  # of a version that had no such table
        return
    if lively:
        raise RestoreRefused(
            "the site in this database runs: its worker was heard of seconds ago; stop it first, "
            f"and if you have just done so, try again in {_LIVELY.seconds} s"
        )


def _check_files(manifest: Manifest, folder: Path, *, overwrite: bool) -> None:
    there = [kept.path for kept in manifest.files if (folder / kept.path).exists()]
    # The settings have just made a secret key for a site that is new.
    if not overwrite and set(there) - {"secret_key"}:
        raise RestoreRefused(f"{folder / there[0]} exists; --force replaces it")


def _load(archive: ArchiveReader, *, say: Callable[[str], None]) -> None:
    """Into an empty database."""
    executor = MigrationExecutor(connection)
    migrations = archive.manifest.migrations
    executor.migrate(tables.ends_of(executor.loader, migrations))
    models = {m._meta.label_lower: m for m in tables.models_of(executor.loader, migrations)}
    with transaction.atomic():
        _check_references("DEFERRED")  # rows may come before those they name
        for model in models.values():  # what migrations put in themselves
            model._base_manager.all()._raw_delete(connection.alias)
        for table in archive.manifest.tables:
            model = models[table.label]
            lines = archive.lines(table_member(table.label))
            count = tables.load_rows(model, table.columns, lines)
            if count != table.rows:
                raise NoBackup(f"{table.label} has {count} rows, not {table.rows}")
            say(f"{table.label}: {count} rows")
        for table in archive.manifest.tables:
            if table.last_id is not None:
                tables.set_last_id(models[table.label], table.last_id)
        connection.check_constraints()
        _check_references("IMMEDIATE")  # or what follows could not change these tables
    call_command("migrate", interactive=False, verbosity=0)


def _check_references(when: str) -> None:
    """Of PostgreSQL, until its transaction ends; migrations leave it at either."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"SET CONSTRAINTS ALL {when}")


def _write_files(archive: ArchiveReader, folder: Path, files: ExitStack) -> None:
    """Beside those that are there, which they replace when `files` is closed."""
    for kept in archive.manifest.files:
        path = folder / checked_path(kept.path)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = files.enter_context(whole_file(path, mode=kept.mode))
        file.writelines(archive.pieces(file_member(kept.path)))
        file.flush()  # a full disk is noticed here


@contextmanager
def _database_replaced() -> Iterator[None]:
    """Within, the database is empty; if it is left by an exception, it is as it was."""
    if connection.vendor == "postgresql":
        with transaction.atomic():
            _drop_our_tables()
            yield
        return
    place = Path(connection.settings_dict["NAME"])
    fresh = place.with_name(f".{place.name}.restored")
    _remove(fresh)
    connection.close()
    connection.settings_dict["NAME"] = str(fresh)
    try:
        yield
        connection.close()  # the last connection puts the write-ahead log into the file
        _remove(place, ends=_BESIDE)
        fresh.replace(place)
    finally:
        connection.close()
        _remove(fresh)
        connection.settings_dict["NAME"] = str(place)


def _drop_our_tables() -> None:
    loader = MigrationLoader(connection)
    ours = {m._meta.db_table for m in tables.models_of(loader, tables.applied_by_app(loader))}
    there = set(connection.introspection.table_names())
    with connection.cursor() as cursor:
        for name in sorted((ours | {"django_migrations"}) & there):
            cursor.execute(f"DROP TABLE {connection.ops.quote_name(name)} CASCADE")


def _remove(database: Path, *, ends: tuple[str, ...] = ("", *_BESIDE)) -> None:
    """Delete a SQLite file and its companion files (journal, WAL)."""
    for end in ends:
        database.with_name(database.name + end).unlink(missing_ok=True)
