"""`helixweb restore`: put a site back as a backup has it."""

import json
from argparse import Namespace

from helixweb.command_line.command import argument, command
from helixweb.command_line.failures import CommandFailed
from helixweb.operations import site


@command(
    argument("source", help="a file, s3://BUCKET/NAME, or a folder: its last backup"),
    argument(
        "--force", action="store_true", help="replace a site that is there (a backup is kept)"
    ),
    argument("--check", action="store_true", help="verify it and change nothing"),
    site.DATA_OPTION,
    site.PASSPHRASE_OPTION,
    argument("--json", action="store_true", help="say what was restored as JSON"),
    connects=False,
    description="Verify a backup and put it into the database and the data folder of this "
    "machine. A backup of an older version is brought up to date; one of a newer is refused.",
)
@site.on_site
def restore(arguments: Namespace) -> None:
    from helixweb.operations.backup import restoring
    from helixweb.operations.backup.archive import ArchiveReader
    from helixweb.operations.backup.stores import store_of

    around, passphrase = arguments.surroundings, site.passphrase_of(arguments)
    store, named = store_of(arguments.source)
    name = named or next(iter(reversed(store.names())), "")
    if not name:
        raise CommandFailed(f"there is no backup in {arguments.source}")
    with store.reading(name) as path:
        if arguments.check:
            with ArchiveReader.open(path, passphrase=passphrase) as archive:
                restoring.check(archive)
                manifest = archive.manifest
        else:
            say = site.progress(around)
            manifest = restoring.restore(
                path, passphrase=passphrase, overwrite=arguments.force, say=say
            )
    if arguments.json:
        told = manifest.model_dump(include={"version", "created_at", "database"})
        counts = {"tables": len(manifest.tables), "rows": manifest.rows}
        around.say(json.dumps({"source": name, **told, **counts}))
        return
    done = "is whole" if arguments.check else "is restored"
    around.say(
        f"{name} {done}: {manifest.rows} rows of {len(manifest.tables)} tables, saved by HelixWeb "
        f"{manifest.version} at {manifest.created_at} on {manifest.database}."
    )
