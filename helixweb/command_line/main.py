"""`helixweb COMMAND …`: finds the command and turns what it raises into an exit code."""

import argparse
import os
import sys
from collections.abc import Sequence

from helixweb.command_line import exit_codes
from helixweb.command_line.registry import COMMANDS, load
from helixweb.command_line.surroundings import Surroundings
from helixweb.versions import product_version


def main(argv: Sequence[str] | None = None, *, surroundings: Surroundings | None = None) -> int:
    """Run one command; returns the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    around = surroundings or Surroundings()
    if "_ARGCOMPLETE" in os.environ and argv is None:
        _complete()
    try:
        arguments = parser_for(given).parse_args(given)
    except SystemExit as leaving:  # argparse has said what it wanted to
        return exit_codes.OK if leaving.code in (None, 0) else exit_codes.USAGE
    from helixweb.command_line import reporting  # imports httpx, which `--help` does without

    arguments.surroundings = around
    try:
        code: int = arguments.run_command(arguments)
        around.out.flush()
        return code
    except KeyboardInterrupt:
        around.warn("interrupted")
        return exit_codes.INTERRUPTED
    except BrokenPipeError:  # the reader of our output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.OK
    except reporting.ERRORS as error:
        return reporting.report(error, around, as_json=getattr(arguments, "json", False))


def parser_for(given: Sequence[str]) -> argparse.ArgumentParser:
    """The parser, with the options of that one command only which `given` names."""
    parser = argparse.ArgumentParser(
        prog="helixweb",
        description="Serve large language models on mixed GPUs.",
        epilog="exit codes: " + "; ".join(f"{c} {t}" for c, t in exit_codes.MEANINGS.items()),
    )
    parser.add_argument("--version", action="version", version=f"helixweb {product_version()}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    named = next((word for word in given if word in COMMANDS), None)
    for name, (_, summary) in COMMANDS.items():
        if name == named:
            load(name).add_parser(subparsers, name, summary)
        else:
            subparsers.add_parser(name, help=summary)
    return parser


def _complete() -> None:
    """Answers the shell that wants to complete a line, and ends the process."""
    import argcomplete

    words = os.environ.get("COMP_LINE", "").split()[1:]
    argcomplete.autocomplete(parser_for(words))
