"""`helixweb backup`: save the site, while it runs."""

from datetime import UTC, datetime
from pathlib import Path

from helixweb.command_line.command import command
from helixweb.command_line.failures import BadUsage, CommandFailed
from helixweb.command_line.numbers import Count
from helixweb.command_line.surroundings import Surroundings
from helixweb.operations import site


@command(site.DATA_OPTION, connects=False)
@site.on_site
def backup(
    around: Surroundings,
    target: str,
    *,
    keep: Count | None = None,
    passphrase_file: Path | None = None,
    json: bool = False,
) -> None:
    """Save the site.

    Save database and secrets of the site on this machine in one file, while it runs. It restores on
    SQLite and on PostgreSQL alike.

    target: a file, a folder (a name by the time is made), or s3://BUCKET/PREFIX/
    --keep N: in a folder: remove all but the last N backups
    --passphrase-file FILE: whose first line encrypts the backup (or set HELIX_BACKUP_PASSPHRASE)
    --json: say what was saved as JSON
    """
    from helixweb.operations.backup.saving import save
    from helixweb.operations.backup.stores import forget_old, fresh_name, store_of
    from helixweb.operations.migrating import is_empty

    passphrase = site.passphrase_of(around, passphrase_file)
    store, named = store_of(target)
    if keep and named:
        raise BadUsage("--keep is for folders: end the target with a slash")
    if is_empty():
        raise CommandFailed("there is no site in this database; is it the right --data folder?")
    name = named or fresh_name(datetime.now(UTC))
    with store.writing(name) as path:
        manifest = save(to=path, passphrase=passphrase, say=site.progress(around))
        size = path.stat().st_size
    removed = forget_old(store, keep=keep) if keep else []
    where = store.address(name)
    if json:
        result = {
            "target": where,
            "bytes": size,
            "version": manifest.version,
            "tables": len(manifest.tables),
            "rows": manifest.rows,
            "files": [stored.path for stored in manifest.files],
            "encrypted": bool(passphrase),
            "removed": removed,
        }
        around.say_json(result)
        return
    around.say(
        f"Saved {manifest.rows} rows of {len(manifest.tables)} tables and {len(manifest.files)} "
        f"files in {where} ({size} bytes{', encrypted' if passphrase else ''})."
    )
    if not passphrase:
        around.warn("it holds the site's secrets and is not encrypted; see --passphrase-file")
    for old in removed:
        around.say(f"Removed {old}.")
