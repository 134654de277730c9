"""What commands that work on the site's own data have in common."""

from argparse import Namespace
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TypeAlias

from helixweb.command_line.command import Act, argument
from helixweb.command_line.failures import BadUsage, CommandFailed
from helixweb.command_line.surroundings import Surroundings
from helixweb.command_line.text_files import text_of
from helixweb.operations.opening import opened

PASSPHRASE = "HELIX_BACKUP_PASSPHRASE"  # noqa: S105 - the variable's name
Say: TypeAlias = Callable[[str], None]

DATA_OPTION = argument(
    "--data", type=Path, metavar="DIR", help="data folder of the site (HELIX_DATA_DIR)"
)
# Never the passphrase itself: other users of the machine see command lines.
PASSPHRASE_OPTION = argument(
    "--passphrase-file",
    type=Path,
    metavar="FILE",
    help=f"whose first line encrypts the backup (or set {PASSPHRASE})",
)


def passphrase_of(arguments: Namespace) -> str:
    """Empty: none was given. Raises CommandFailed, OSError."""
    path: Path | None = arguments.passphrase_file
    if path is None:
        environ = arguments.surroundings.environ
        return str(environ.get(PASSPHRASE, ""))
    try:
        first = text_of(path).partition("\n")[0].strip()
    except BadUsage as error:
        raise CommandFailed(str(error)) from error
    if not first:
        raise CommandFailed(f"{path} is empty; put the passphrase on its first line")
    return first


def on_site(act: Act) -> Act:
    """Have the function work on the site in `--data`, and import what needs Django itself."""

    @wraps(act)
    def opened_first(arguments: Namespace) -> int | None:
        with opened(arguments.data):
            return act(arguments)

    return opened_first


def progress(around: Surroundings) -> Say:
    """Lines to stderr on a terminal, none for a script."""
    return around.warn if around.err.isatty() else lambda text: None
