"""`helixweb restore`: put a site back as a backup has it."""

import argparse
import json
import tempfile
from pathlib import Path

from helixweb.command_line import exit_codes
from helixweb.command_line.registry import Subparsers
from helixweb.operations.commands import site
from helixweb.operations.prepare import Fault


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(
        "restore",
        help="put a site back as a backup has it",
        description="Verify a backup and put it into the database and the data folder of this "
        "machine. A backup of an older version is brought up to date; one of a newer is refused.",
    )
    parser.add_argument("source", help="a file, s3://BUCKET/NAME, or a folder: its last backup")
    parser.add_argument(
        "--force", action="store_true", help="replace a site that is there (a backup is kept)"
    )
    parser.add_argument("--check", action="store_true", help="verify it and change nothing")
    site.add_data_option(parser)
    site.add_passphrase_option(parser)
    parser.add_argument("--json", action="store_true", help="say what was restored as JSON")
    return parser


def run(arguments: argparse.Namespace) -> int:
    around = arguments.surroundings
    try:
        passphrase = site.passphrase_of(arguments, around)
        with site.opened(arguments.data):
            return _restore(arguments, passphrase=passphrase)
    except Fault as fault:
        return site.failed(fault, arguments)


def _restore(arguments: argparse.Namespace, *, passphrase: str) -> int:
    from helixweb.operations.backup.archive import ArchiveReader, NoBackup
    from helixweb.operations.backup.restoring import RestoreRefused, check, restore
    from helixweb.operations.backup.sealing import WrongPassphrase
    from helixweb.operations.backup.stores import StoreFault, place_of

    around = arguments.surroundings
    try:
        with tempfile.TemporaryDirectory(prefix="helixweb-restore-") as folder:
            place = place_of(arguments.source)
            name = place.name or next(iter(reversed(place.store.names())), "")
            if not name:
                raise Fault(f"there is no backup in {arguments.source}")
            path = place.store.fetch(name, Path(folder))
            if arguments.check:
                with ArchiveReader.open(path, passphrase=passphrase) as archive:
                    check(archive)
                    manifest = archive.manifest
            else:
                manifest = restore(
                    path,
                    passphrase=passphrase,
                    overwrite=arguments.force,
                    say=site.progress(around),
                )
    except RestoreRefused as refused:
        return site.failed(refused, arguments, code=exit_codes.CONFLICT)
    except (NoBackup, StoreFault, WrongPassphrase, OSError) as error:
        raise Fault(str(error)) from error
    if arguments.json:
        told = manifest.model_dump(include={"version", "created_at", "database"})
        counts = {"tables": len(manifest.tables), "rows": manifest.rows}
        around.say(json.dumps({"source": name, **told, **counts}))
        return exit_codes.OK
    done = "is whole" if arguments.check else "is restored"
    around.say(
        f"{name} {done}: {manifest.rows} rows of {len(manifest.tables)} tables, saved by HelixWeb "
        f"{manifest.version} at {manifest.created_at} on {manifest.database}."
    )
    return exit_codes.OK
