"""`helixweb backup`: save the site, while it runs."""

import argparse
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from helixweb.command_line import exit_codes
from helixweb.command_line.registry import Subparsers
from helixweb.operations.commands import site
from helixweb.operations.prepare import Fault


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(
        "backup",
        help="save database and secrets in one file",
        description="Save database and secrets of the site on this machine in one file, while it "
        "runs. It restores on SQLite and on PostgreSQL alike.",
    )
    parser.add_argument(
        "target", help="a file, a folder (a name by the time is made), or s3://BUCKET/PREFIX/"
    )
    parser.add_argument(
        "--keep", type=_count, metavar="N", help="in a folder: remove all but the last N backups"
    )
    site.add_data_option(parser)
    site.add_passphrase_option(parser)
    parser.add_argument("--json", action="store_true", help="say what was saved as JSON")
    return parser


def run(arguments: argparse.Namespace) -> int:
    around = arguments.surroundings
    try:
        passphrase = site.passphrase_of(arguments, around)
        with site.opened(arguments.data):
            return _save(arguments, passphrase=passphrase)
    except Fault as fault:
        return site.failed(fault, arguments)


def _save(arguments: argparse.Namespace, *, passphrase: str) -> int:
    from helixweb.operations.backup.saving import save
    from helixweb.operations.backup.stores import StoreFault, forget_old, fresh_name, place_of
    from helixweb.operations.migrating import is_empty

    around = arguments.surroundings
    try:
        place = place_of(arguments.target)
        if arguments.keep and place.name:
            around.warn("--keep is for folders: end the target with a slash")
            return exit_codes.USAGE
        if is_empty():
            raise Fault("there is no site in this database; is it the right --data folder?")
        with tempfile.TemporaryDirectory(prefix="helixweb-backup-") as folder:
            saved = save(
                to=Path(folder) / "backup", passphrase=passphrase, say=site.progress(around)
            )
            size = saved.path.stat().st_size
            where = place.store.put(saved.path, place.name or fresh_name(datetime.now(UTC)))
        removed = forget_old(place.store, keep=arguments.keep) if arguments.keep else []
    except (StoreFault, OSError) as error:
        raise Fault(str(error)) from error
    manifest = saved.manifest
    if arguments.json:
        told = {
            "target": where,
            "bytes": size,
            "version": manifest.version,
            "tables": len(manifest.tables),
            "rows": manifest.rows,
            "files": [kept.path for kept in manifest.files],
            "encrypted": bool(passphrase),
            "removed": removed,
        }
        around.say(json.dumps(told))
        return exit_codes.OK
    around.say(
        f"Saved {manifest.rows} rows of {len(manifest.tables)} tables and {len(manifest.files)} "
        f"files in {where} ({size} bytes{', encrypted' if passphrase else ''})."
    )
    if not passphrase:
        around.warn("it holds the site's secrets and is not encrypted; see --passphrase-file")
    for name in removed:
        around.say(f"Removed {name}.")
    return exit_codes.OK


def _count(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
