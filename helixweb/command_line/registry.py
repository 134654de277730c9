"""Which module is which subcommand. It is imported only when asked for, so that all start fast."""

import argparse
import importlib
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, cast

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class Command(Protocol):
    """What such a module has. `run` returns an exit code of `exit_codes.py`."""

    def add_parser(self, subparsers: Subparsers) -> argparse.ArgumentParser: ...

    def run(self, arguments: argparse.Namespace) -> int: ...


_HERE = "helixweb.command_line.commands"
_ON_SERVER = "helixweb.operations.commands"
# Name -> (module or module:object, what `helixweb --help` says of it).
COMMANDS: dict[str, tuple[str, str]] = {
    "up": (f"{_ON_SERVER}.up", "run the site on this machine: web, worker and coordinator"),
    "demo": (f"{_HERE}.demo", "start a small cluster on this machine and show it at work"),
    "doctor": (f"{_ON_SERVER}.doctor", "look for what is wrong with the site on this machine"),
    "backup": (f"{_ON_SERVER}.backup", "save database and secrets of this site in one file"),
    "restore": (f"{_ON_SERVER}.restore", "put a site back as a backup has it"),
    "manage": (f"{_ON_SERVER}.manage", "login links, API keys and other work on the site's data"),
    "wheels": (f"{_ON_SERVER}.wheels", "gather and serve packages for machines without internet"),
    "login": (f"{_HERE}.login", "keep the site's address and an API key for the other commands"),
    "cluster": (f"{_HERE}.cluster", "list, show, add, edit, remove clusters"),
    "node": (f"{_HERE}.node", "list, show, add, edit, measure, remove nodes; make join tokens"),
    "model": (f"{_HERE}.model", "list, show, add, pull, edit, remove models"),
    "plan": (f"{_HERE}.plan", "compute, extend, replan, compare, study plans"),
    "deploy": (f"{_HERE}.serving:DEPLOY", "make a plan what its cluster runs"),
    "drain": (f"{_HERE}.serving:DRAIN", "have a node take no requests, or take it in again"),
    "pause": (f"{_HERE}.serving:PAUSE", "let new requests wait"),
    "resume": (f"{_HERE}.serving:RESUME", "let in what waits"),
    "rollback": (f"{_HERE}.serving:ROLLBACK", "deploy anew what served before"),
    "undeploy": (f"{_HERE}.serving:UNDEPLOY", "have every node let go of its layers"),
    "status": (f"{_HERE}.status", "what runs, what limits it, and what needs a look"),
    "top": (f"{_HERE}.top", "nodes, links and latencies, live"),
    "chat": (f"{_HERE}.chat", "talk to a deployed model"),
    "bench": (f"{_HERE}.bench", "measure an endpoint under so many requests at once"),
    "events": (f"{_HERE}.events", "follow what happens"),
    "export": (f"{_HERE}.exporting", "write the inventory as YAML, JSON or CSV"),
    "import": (f"{_HERE}.importing", "compare a file with the site, and make the site so"),
    "api": (f"{_HERE}.api", "ask anything of the REST API that no other command asks"),
    "completion": (f"{_HERE}.completion", "print what completes lines in bash, zsh or fish"),
}


def load(name: str) -> Command:
    """The module of subcommand `name`, or the object in it."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    found = importlib.import_module(module)
    return cast(Command, getattr(found, attribute) if attribute else found)


def completed_by(action: argparse.Action, completer: Callable[..., Any]) -> None:
    """Let the shell offer what `completer` finds; argcomplete looks for it there."""
    action.completer = completer  # type: ignore[attr-defined]
