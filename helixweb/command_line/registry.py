"""Which module is which subcommand. It is imported only when asked for, so that all start fast."""

import argparse
import importlib
from typing import Protocol, TypeAlias, cast

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class Command(Protocol):
    """What such a module has. `run` returns an exit code of `exit_codes.py`."""

    def add_parser(self, subparsers: Subparsers) -> argparse.ArgumentParser: ...

    def run(self, arguments: argparse.Namespace) -> int: ...


_HERE = "helixweb.command_line.commands"
# Name -> (module, what `helixweb --help` says of it).
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": (f"{_HERE}.demo", "start a small cluster on this machine and show it at work"),
}


def load(name: str) -> Command:
    """The module of subcommand `name`."""
    return cast(Command, importlib.import_module(COMMANDS[name][0]))
