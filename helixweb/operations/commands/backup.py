"""`helixweb backup`: save the site, while it runs."""

import json
from argparse import Namespace
from datetime import UTC, datetime

from helixweb.command_line.command import argument, command
from helixweb.command_line.failures import BadUsage, CommandFailed
from helixweb.command_line.numbers import whole_number
from helixweb.operations import site


@command(
    argument(
        "target", help="a file, a folder (a name by the time is made), or s3://BUCKET/PREFIX/"
    ),
    argument(
        "--keep",
        type=whole_number,
        metavar="N",
        help="in a folder: remove all but the last N backups",
    ),
    site.DATA_OPTION,
    site.PASSPHRASE_OPTION,
    argument("--json", action="store_true", help="say what was saved as JSON"),
    connects=False,
    description="Save database and secrets of the site on this machine in one file, while it "
    "runs. It restores on SQLite and on PostgreSQL alike.",
)
@site.on_site
def backup(arguments: Namespace) -> None:
    from helixweb.operations.backup.saving import save
    from helixweb.operations.backup.stores import forget_old, fresh_name, store_of
    from helixweb.operations.migrating import is_empty

    around, passphrase = arguments.surroundings, site.passphrase_of(arguments)
    store, named = store_of(arguments.target)
    if arguments.keep and named:
        raise BadUsage("--keep is for folders: end the target with a slash")
    if is_empty():
        raise CommandFailed("there is no site in this database; is it the right --data folder?")
    name = named or fresh_name(datetime.now(UTC))
    with store.writing(name) as path:
        manifest = save(to=path, passphrase=passphrase, say=site.progress(around))
        size = path.stat().st_size
    removed = forget_old(store, keep=arguments.keep) if arguments.keep else []
    where = store.address(name)
    if arguments.json:
        told = {
            "target": where,
            "bytes": size,
            "version": manifest.version,
            "tables": len(manifest.tables),
            "rows": manifest.rows,
            "files": [stored.path for stored in manifest.files],
            "encrypted": bool(passphrase),
            "removed": removed,
        }
        around.say(json.dumps(told))
        return
    around.say(
        f"Saved {manifest.rows} rows of {len(manifest.tables)} tables and {len(manifest.files)} "
        f"files in {where} ({size} bytes{', encrypted' if passphrase else ''})."
    )
    if not passphrase:
        around.warn("it holds the site's secrets and is not encrypted; see --passphrase-file")
    for old in removed:
        around.say(f"Removed {old}.")
