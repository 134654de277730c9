"""The planner's shell commands: solve, compare, explain, mix, replan, simulate.

Exit codes: 0 done (also when Ctrl-C ended the search early: the best plan so far is written),
2 bad input or no plan, with one line on stderr.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from planner.commands import compare, explain, mix, replan, simulate, solve
from planner.domain.errors import PlannerError

EXIT_OK = 0
EXIT_BAD_INPUT = 2
_COMMANDS = {
    solve.NAME: (solve, "compute a plan and write it to a file"),
    compare.NAME: (compare, "tabulate the flow of every placer's placement"),
    explain.NAME: (explain, "say what limits a plan and what one more of each resource brings"),
    mix.NAME: (mix, "plan several models on one cluster"),
    simulate.NAME: (simulate, "forecast what a plan delivers under a workload"),
    replan.NAME: (replan, "change a running plan for a changed problem, moving few bytes"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parsed = _parser().parse_args(arguments)
    command, _ = _COMMANDS[parsed.command]
    try:
        command.run(parsed)
    except (PlannerError, OSError) as error:
        print(f"planner: {_one_line(error)}", file=sys.stderr)
        return EXIT_BAD_INPUT
    return EXIT_OK


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_INPUT, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _OneLineParser(prog="planner", description="Place a model's layers on mixed nodes.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (command, help_text) in _COMMANDS.items():
        command.add_arguments(commands.add_parser(name, help=help_text))
    return parser


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())


if __name__ == "__main__":
    sys.exit(main())
