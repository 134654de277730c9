"""The coordinator's command line."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from planner.domain.cluster import COORDINATOR
from planner.routers.choice import ROUTER_NAMES, RouterName
from runtime.api.client_address import Network, networks
from runtime.command_numbers import port_number, positive_seconds
from runtime.coordinator.dispatcher import MIGRATE_AFTER_S
from runtime.coordinator.tracing import MOST_PER_REPORT
from runtime.protocol.addresses import Advertised, add_data_options
from runtime.protocol.data_security import DataSecurity
from runtime.protocol.join_tokens import TOKEN_HELP
from runtime.protocol.trust import CA_HELP, ca_file
from runtime.serving_options import add_serving_options


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line."""

    server: str
    ca: Path | None
    token: str | None
    name: str
    region: str
    data_dir: Path
    host: str
    port: int
    public_url: str
    data_host: str
    data_port: int
    advertise: Advertised | None
    data_security: DataSecurity
    request_timeout_s: float
    migrate_after_s: float
    shutdown_grace_s: float
    router: RouterName
    traces_per_s: float
    measure_links: bool
    metrics_port: int | None
    trusted_proxies: tuple[Network, ...]
    emulate: Path | None


def parse_options(argv: list[str]) -> Options:
    """Exits with status 2 and a usage message when `argv` is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m runtime coordinator",
        description="Serve chat clients over the deployed plan: an OpenAI-compatible endpoint.",
    )
    _add_membership(parser)
    _add_addresses(parser)
    add_serving_options(parser, late="a request fails", grace_s=30.0)
    _add_behaviour(parser)
    return Options(**vars(parser.parse_args(argv)))


def _add_membership(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--server", required=True, help="URL of helixweb; may be down, once joined")
    add("--ca", type=ca_file, metavar="FILE", help=CA_HELP)
    add("--token", help=TOKEN_HELP)
    add("--name", default=COORDINATOR, help="name in the cluster (default %(default)s)")
    add("--region", default="local", help="region it is in (default %(default)s)")
    add("--data-dir", required=True, type=Path, help="keeps keys, credential and the last plan")


def _add_addresses(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--host",
        default="",
        help="address for chat clients; 0.0.0.0: all of this machine (default: the one on the way "
        "to --server, which is loopback for a site on this machine)",
    )
    add(
        "--port", type=port_number, default=8100, help="port for chat clients (default %(default)s)"
    )
    add("--public-url", default="", help="where clients reach it, if not http://HOST:PORT")
    add("--data-host", default="", help="address for stages (default: that of --host, if one)")
    add(
        "--data-port",
        type=port_number,
        default=0,
        help="port for stages (default: that of chat clients, if it stays, --host and --data-host "
        "are one address and frames are encrypted; else any, then kept)",
    )
    add_data_options(parser)


def _add_behaviour(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--migrate-after",
        dest="migrate_after_s",
        type=positive_seconds,
        default=MIGRATE_AFTER_S,
        help="seconds after which requests of a plan that another follows go on under that one, "
        "and those on a node that is drained around it, which costs them a prefill; layers are "
        "held until then (default %(default)g)",
    )
    add(
        "--router",
        choices=ROUTER_NAMES,
        default="iwrr",
        help="how pipelines are chosen; all but iwrr are for comparison (default %(default)s)",
    )
    add(
        "--traces-per-s",
        type=_rate,
        default=2.0,
        help="requests a second, at most, of which helixweb gets a time line; 0: none "
        "(default %(default)g)",
    )
    add(
        "--measure-links",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="have stages measure what links do that the plan does not use, with at most 1 %% of "
        "a network card's time and none that requests want (default %(default)s)",
    )
    add(
        "--metrics-port",
        type=port_number,
        help="answer /metrics there too, without a key and to this machine only (default: only at "
        "--port, with a key)",
    )
    add(
        "--trusted-proxies",
        type=networks,
        default=(),
        metavar="NETWORKS",
        help="proxies in front, such as 127.0.0.1,192.0.2.0/28: X-Forwarded-For of theirs says who "
        "asks, for keys that are held to networks (default: nobody's)",
    )
    add(
        "--emulate",
        type=Path,
        metavar="FILE.json",
        help="delay what is sent to the stages as the links described there would "
        "(EmulatedNetwork in runtime/protocol/emulation.py)",
    )


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if 0 <= rate <= MOST_PER_REPORT:
        return rate
    raise argparse.ArgumentTypeError(
        f"{text!r} requests a second cannot be traced; give 0 to {MOST_PER_REPORT}"
    )
