"""`helix-agent join URL --token T`: the shortest way to make this machine a node of a cluster.

The same agent as `python -m runtime agent`, with what a machine knows by itself filled in: its
name, where it keeps who it is, and the address by which other nodes reach it. Started again it
needs no token. Every option of `python -m runtime agent` may follow.
"""

import argparse
import ipaddress
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from runtime.agent import main as agent

_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


def main(argv: Sequence[str] | None = None) -> int:
    """Run until told to stop; returns the exit status (2: it was started wrongly)."""
    known, rest = _parser().parse_known_args(argv)
    return agent.main(agent_options(known, rest, environ=os.environ))


def agent_options(
    known: argparse.Namespace, rest: Sequence[str], *, environ: Mapping[str, str]
) -> list[str]:
    """The options of `python -m runtime agent` that `join` stands for."""
    data_dir = known.data_dir or default_data_dir(environ)
    options = ["--server", known.url, "--data-dir", str(data_dir)]
    if known.token is not None:
        options += ["--token", known.token, "--name", known.name or machine_name()]
    elif known.name is not None:
        options += ["--name", known.name]
    options += ["--data-host", known.data_host or address_towards(known.url)]
    return [*options, *rest]


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """Where this user's agent keeps who it is."""
    base = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "helix-agent"


def machine_name() -> str:
    """The host's name without what names of nodes may not have."""
    return _UNFIT.sub("-", socket.gethostname().partition(".")[0]).strip("-.") or "node"


def address_towards(url: str) -> str:
    """This machine's address on the way to the server; nothing is sent to find it."""
    host = urlsplit(url).hostname or "localhost"
    try:
        family, _, _, _, there = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(there)
            return str(ipaddress.ip_address(probe.getsockname()[0].partition("%")[0]))
    except OSError:
        return "127.0.0.1"  # no way there yet; joining will say so


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="helix-agent", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    join = commands.add_parser("join", help="make this machine a node of a cluster")
    join.add_argument("url", metavar="URL", help="where helixweb is, e.g. https://helix.example")
    join.add_argument("--token", help="join token hlxj_…; needed at the first start only")
    join.add_argument("--name", help="the node's name (default: that of this machine)")
    join.add_argument("--data-dir", type=Path, help="where this node keeps who it is")
    join.add_argument("--data-host", help="this machine's IP address as other nodes dial it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
