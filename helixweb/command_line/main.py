"""`helixweb COMMAND …`: finds the command and turns what it raises into an exit code."""

import argparse
import sys
from collections.abc import Sequence
from importlib import metadata

from helixweb.command_line import exit_codes
from helixweb.command_line.registry import COMMANDS, load
from helixweb.command_line.surroundings import Surroundings


def main(argv: Sequence[str] | None = None, *, surroundings: Surroundings | None = None) -> int:
    """Run one command; returns the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    around = surroundings or Surroundings()
    arguments = parser_for(given).parse_args(given)
    arguments.surroundings = around
    try:
        return load(arguments.command).run(arguments)
    except KeyboardInterrupt:
        around.warn("interrupted")
        return exit_codes.INTERRUPTED


def parser_for(given: Sequence[str]) -> argparse.ArgumentParser:
    """The parser, with the options of that one command only which `given` names."""
    parser = argparse.ArgumentParser(
        prog="helixweb",
        description="Serve large language models on mixed GPUs.",
        epilog="exit codes: " + "; ".join(f"{c} {t}" for c, t in exit_codes.MEANINGS.items()),
    )
    parser.add_argument("--version", action="version", version=f"helixweb {_version()}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    named = given[0] if given and given[0] in COMMANDS else None
    for name, (_, summary) in COMMANDS.items():
        if name == named:
            load(name).add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=summary)
    return parser


def _version() -> str:
    try:
        return metadata.version("helixweb")
    except metadata.PackageNotFoundError:
        return "not installed"
