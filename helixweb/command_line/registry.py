"""Which object is which subcommand. One is imported only when called, so that all start fast."""

import importlib
from typing import Any

_HERE, _ON_SERVER = "helixweb.command_line.commands", "helixweb.operations.commands"
# Name -> (where it is declared, what `helixweb --help` says of it).
COMMANDS: dict[str, tuple[str, str]] = {
    "up": (f"{_ON_SERVER}.up:up", "run the site on this machine: web, worker and coordinator"),
    "demo": (f"{_HERE}.local:demo", "start a small cluster on this machine and show it at work"),
    "doctor": (f"{_ON_SERVER}.doctor:doctor", "look for what is wrong with the site here"),
    "backup": (f"{_ON_SERVER}.backup:backup", "save database and secrets of this site in one file"),
    "restore": (f"{_ON_SERVER}.restore:restore", "put a site back as a backup has it"),
    "manage": (f"{_ON_SERVER}.manage:manage", "login links, API keys and other work on the data"),
    "wheels": (f"{_ON_SERVER}.wheels:wheels", "gather and serve packages for offline machines"),
    "login": (f"{_HERE}.login:login", "save the site's address and an API key for other commands"),
    "cluster": (f"{_HERE}.cluster:cluster", "list, show, add, edit, remove clusters"),
    "node": (f"{_HERE}.node:node", "list, show, add, edit, measure, remove nodes; join tokens"),
    "model": (f"{_HERE}.model:model", "list, show, add, pull, edit, remove models"),
    "plan": (f"{_HERE}.plan:plan", "compute, extend, replan, compare, study plans"),
    "deploy": (f"{_HERE}.serving:deploy", "make a plan what its cluster runs"),
    "drain": (f"{_HERE}.serving:drain", "have a node take no requests, or take it in again"),
    "pause": (f"{_HERE}.serving:pause", "let new requests wait"),
    "resume": (f"{_HERE}.serving:resume", "let in what waits"),
    "rollback": (f"{_HERE}.serving:rollback", "deploy again what served before"),
    "undeploy": (f"{_HERE}.serving:undeploy", "have every node let go of its layers"),
    "status": (f"{_HERE}.status:status", "what runs, what limits it, and what needs a look"),
    "top": (f"{_HERE}.top:top", "nodes, links and latencies, live"),
    "chat": (f"{_HERE}.chat:chat", "talk to a deployed model"),
    "bench": (f"{_HERE}.bench:bench", "measure an endpoint under so many requests at once"),
    "events": (f"{_HERE}.events:events", "follow what happens"),
    "export": (f"{_HERE}.files:export", "write the inventory as YAML, JSON or CSV"),
    "import": (f"{_HERE}.files:import_file", "compare a file with the site, and make the site so"),
    "api": (f"{_HERE}.api:api", "ask anything of the REST API that no other command asks"),
    "completion": (f"{_HERE}.local:completion", "print what completes lines in bash, zsh or fish"),
}


def load(name: str) -> Any:
    """The command `name`: a `Command` or `Verbs`."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    return getattr(importlib.import_module(module), attribute)
