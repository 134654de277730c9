"""What commands that work on the site's own data have in common."""

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import django

from helixweb.command_line import exit_codes, reporting
from helixweb.command_line.reporting import BadUsage, CommandFailed
from helixweb.command_line.surroundings import Surroundings
from helixweb.command_line.text_files import text_of
from helixweb.operations.prepare import Fault, said_plainly

PASSPHRASE = "HELIX_BACKUP_PASSPHRASE"  # noqa: S105 - the variable's name


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """`--data`, as `up` has it."""
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="data folder of the site (HELIX_DATA_DIR)"
    )


def add_passphrase_option(parser: argparse.ArgumentParser) -> None:
    """Never the passphrase itself: other users of the machine see command lines."""
    parser.add_argument(
        "--passphrase-file",
        type=Path,
        metavar="FILE",
        help=f"whose first line encrypts the backup (or set {PASSPHRASE})",
    )


def passphrase_of(arguments: argparse.Namespace, around: Surroundings) -> str:
    """Empty: none was given. Raises Fault."""
    path: Path | None = arguments.passphrase_file
    if path is None:
        return around.environ.get(PASSPHRASE, "")
    try:
        first = text_of(path).partition("\n")[0].strip()
    except OSError as error:
        raise Fault(f"{path} cannot be read: {error.strerror}") from error
    except BadUsage as error:
        raise Fault(str(error)) from error
    if not first:
        raise Fault(f"{path} is empty; put the passphrase on its first line")
    return first


@contextmanager
def opened(data: Path | None) -> Iterator[None]:
    """Within, Django knows that site. Raises Fault for what its operator must change."""
    if data is not None:
        os.environ["HELIX_DATA_DIR"] = str(data.expanduser().resolve())
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "helixweb.settings")
    with said_plainly():
        django.setup()
        from helixweb.common.actor import acting_for_site  # needs the models

        with acting_for_site():
            yield


def failed(
    fault: Exception, arguments: argparse.Namespace, *, code: int = exit_codes.FAILED
) -> int:
    """Says it as other commands do, with --json as an object; the exit code."""
    told = CommandFailed(str(fault))
    told.exit_code = code
    return reporting.report(told, arguments.surroundings, as_json=arguments.json)


Say: TypeAlias = Callable[[str], None]


def progress(around: Surroundings) -> Say:
    """Lines to stderr for a person, none for a script."""
    return around.warn if around.err.isatty() else lambda text: None
