"""The planner's shell commands: solve, compare, draw, explain, mix, replan, roofline, simulate.

Exit codes: 0 done (also when Ctrl-C ended the search early: the best plan so far is written),
2 bad input or no plan, with one line on stderr, 130 when Ctrl-C came before there was any plan.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn, Protocol

from planner.domain.errors import PlannerError

EXIT_OK = 0
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


class Command(Protocol):
    """Interface of the modules of `planner.commands`."""

    def add_arguments(self, command: argparse.ArgumentParser) -> None: ...

    def run(self, parsed: argparse.Namespace) -> None: ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    try:
        commands = _commands()
        parsed = _parser(commands).parse_args(arguments)
        command, _ = commands[parsed.command]
        command.run(parsed)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (PlannerError, OSError) as error:
        print(f"planner: {_one_line(error)}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        print("planner: interrupted before there was a result", file=sys.stderr)
        return EXIT_INTERRUPTED
    return EXIT_OK


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_INPUT, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _commands() -> dict[str, tuple[Command, str]]:
    """Commands by name. Their imports are slow, so Ctrl-C is handled first."""
    from planner.commands import compare, draw, explain, mix, replan, roofline, simulate, solve

    return {
        "solve": (solve, "compute a plan and write it to a file"),
        "compare": (compare, "tabulate the flow of every placer's placement"),
        "draw": (draw, "draw a plan: who holds which layers, and what passes between them"),
        "explain": (explain, "say what limits a plan and what one more of each resource brings"),
        "mix": (mix, "plan several models on one cluster"),
        "simulate": (simulate, "forecast what a plan delivers under a workload"),
        "roofline": (roofline, "estimate a GPU's profile from its data sheet"),
        "replan": (replan, "change a running plan for a changed problem, moving few bytes"),
    }


def _parser(modules: Mapping[str, tuple[Command, str]]) -> argparse.ArgumentParser:
    parser = _OneLineParser(prog="planner", description="Place a model's layers on mixed nodes.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (command, help_text) in modules.items():
        command.add_arguments(commands.add_parser(name, help=help_text))
    return parser


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())


if __name__ == "__main__":
    sys.exit(main())
