"""Whether this version of the code knows the migrations that a database or a backup has."""

from collections.abc import Collection
from typing import TypeAlias

from django.db.migrations.loader import MigrationLoader

from helixweb.command_line.failures import CommandFailed

Key: TypeAlias = tuple[str, str]


class NewerDatabase(CommandFailed):
    """Migrated by a later version, or by one between two releases."""


def nodes_of(loader: MigrationLoader, applied: Collection[Key]) -> set[Key]:
    """The migrations of this version that were applied; some replace several of earlier ones."""
    return {
        key
        for key in loader.graph.nodes
        if set(loader.disk_migrations[key].replaces or [key]).issubset(applied)
    }


def unknown_migrations(loader: MigrationLoader, applied: Collection[Key]) -> list[str]:
    """Migrations in `applied` (app, name) that are unknown to this version."""
    apps = {app for app, _ in loader.graph.nodes}
    known = nodes_of(loader, applied)
    replaced = {name for key in known for name in loader.disk_migrations[key].replaces}
    strange = set(applied) - known - replaced
    return sorted(f"{app}.{name}" for app, name in strange if app in apps)


def check_known(loader: MigrationLoader) -> None:
    """Raise NewerDatabase if the database has unknown migrations."""
    if strange := unknown_migrations(loader, loader.applied_migrations or {}):
        raise NewerDatabase(
            f"The database was made by a newer HelixWeb: {strange[0]} is unknown to this one. "
            "Install that version again, or restore a backup made before."
        )
