"""Whether this version of the code knows what was made of the database."""


class NewerDatabase(Exception):
    """Migrated by a version that came later."""


def unknown_migrations(applied: set[tuple[str, str]], *, known: set[tuple[str, str]]) -> list[str]:
    """Those of `applied` (app, name) that apps of this version do not have."""
    apps = {app for app, _ in known}
    return sorted(f"{app}.{name}" for app, name in applied - known if app in apps)


def check_known(applied: set[tuple[str, str]], *, known: set[tuple[str, str]]) -> None:
    """Raises NewerDatabase."""
    if strange := unknown_migrations(applied, known=known):
        raise NewerDatabase(
            f"The database was made by a newer HelixWeb: {strange[0]} is unknown to this one. "
            "Install that version again, or restore a backup made before."
        )
