"""`helixweb restore`: put a site back as a backup has it."""

from pathlib import Path

from helixweb.command_line.command import command
from helixweb.command_line.failures import CommandFailed
from helixweb.command_line.surroundings import Surroundings
from helixweb.operations import site


@command(site.DATA_OPTION, connects=False)
@site.on_site
def restore(
    around: Surroundings,
    source: str,
    *,
    force: bool = False,
    check: bool = False,
    passphrase_file: Path | None = None,
    json: bool = False,
) -> None:
    """Put a site back.

    Verify a backup and put it into the database and the data folder of this machine. A backup of an
    older version is brought up to date; one of a newer is refused.

    source: a file, s3://BUCKET/NAME, or a folder: its last backup
    --force: replace a site that is there (a backup is kept)
    --check: verify it and change nothing
    --passphrase-file FILE: whose first line decrypts the backup (or set HELIX_BACKUP_PASSPHRASE)
    --json: say what was restored as JSON
    """
    from helixweb.operations.backup import restoring
    from helixweb.operations.backup.archive import ArchiveReader
    from helixweb.operations.backup.stores import store_of

    passphrase = site.passphrase_of(around, passphrase_file)
    store, named = store_of(source)
    name = named or next(iter(reversed(store.names())), "")
    if not name:
        raise CommandFailed(f"there is no backup in {source}")
    with store.reading(name) as path:
        if check:
            with ArchiveReader.open(path, passphrase=passphrase) as archive:
                restoring.check(archive)
                manifest = archive.manifest
        else:
            say = site.progress(around)
            manifest = restoring.restore(path, passphrase=passphrase, overwrite=force, say=say)
    if json:
        described = manifest.model_dump(include={"version", "created_at", "database"})
        counts = {"tables": len(manifest.tables), "rows": manifest.rows}
        around.say_json({"source": name, **described, **counts})
        return
    done = "is whole" if check else "is restored"
    around.say(
        f"{name} {done}: {manifest.rows} rows of {len(manifest.tables)} tables, saved by HelixWeb "
        f"{manifest.version} at {manifest.created_at} on {manifest.database}."
    )
