"""The coordinator's command line."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from planner.domain.cluster import COORDINATOR
from planner.routers.choice import ROUTER_NAMES, RouterName
from runtime.api.access import Network, networks
from runtime.command_numbers import number_or_nan, port_number, positive_seconds
from runtime.command_options import add_options, add_serving_options, option
from runtime.coordinator.dispatcher import MIGRATE_AFTER_S
from runtime.coordinator.tracing import MOST_PER_REPORT
from runtime.protocol.addresses import Advertised, add_data_options
from runtime.protocol.data_security import DataSecurity
from runtime.protocol.join_tokens import TOKEN_HELP
from runtime.protocol.trust import CA_HELP, ca_file


def _rate(text: str) -> float:
    rate = number_or_nan(text)
    if 0 <= rate <= MOST_PER_REPORT:
        return rate
    raise argparse.ArgumentTypeError(
        f"{text!r} requests a second cannot be traced; give 0 to {MOST_PER_REPORT}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line."""

    server: str = option(required=True, help="URL of helixweb; may be down, once joined")
    ca: Path | None = option(type=ca_file, metavar="FILE", help=CA_HELP)
    token: str | None = option(help=TOKEN_HELP)
    name: str = option(default=COORDINATOR, help="name in the cluster (default %(default)s)")
    region: str = option(default="local", help="region it is in (default %(default)s)")
    data_dir: Path = option(
        required=True, type=Path, help="keeps keys, credential and the last plan"
    )
    host: str = option(
        default="",
        help="address for chat clients; 0.0.0.0: all of this machine (default: the one on the way "
        "to --server, which is loopback for a site on this machine)",
    )
    port: int = option(
        type=port_number, default=8100, help="port for chat clients (default %(default)s)"
    )
    public_url: str = option(default="", help="where clients reach it, if not http://HOST:PORT")
    data_host: str = option(default="", help="address for stages (default: that of --host, if one)")
    data_port: int = option(
        type=port_number,
        default=0,
        help="port for stages (default: that of chat clients, if it stays, --host and --data-host "
        "are one address and frames are encrypted; else any, then kept)",
    )
    migrate_after_s: float = option(
        flag="--migrate-after",
        type=positive_seconds,
        default=MIGRATE_AFTER_S,
        help="seconds after which requests of a plan that another follows go on under that one, "
        "and those on a node that is drained around it, which costs them a prefill; layers are "
        "held until then (default %(default)g)",
    )
    router: RouterName = option(
        choices=ROUTER_NAMES,
        default="iwrr",
        help="how pipelines are chosen; all but iwrr are for comparison (default %(default)s)",
    )
    traces_per_s: float = option(
        type=_rate,
        default=2.0,
        help="requests a second, at most, of which helixweb gets a time line; 0: none "
        "(default %(default)g)",
    )
    measure_links: bool = option(
        action=argparse.BooleanOptionalAction,
        default=True,
        help="have stages measure what links do that the plan does not use, with at most 1 %% of "
        "a network card's time and none that requests want (default %(default)s)",
    )
    metrics_port: int | None = option(
        type=port_number,
        help="answer /metrics there too, without a key and to this machine only (default: only at "
        "--port, with a key)",
    )
    trusted_proxies: tuple[Network, ...] = option(
        type=networks,
        default=(),
        metavar="NETWORKS",
        help="proxies in front, such as 127.0.0.1,192.0.2.0/28: their X-Forwarded-For gives the "
        "client's address, for keys that are held to networks (default: none)",
    )
    emulate: Path | None = option(
        type=Path,
        metavar="FILE.json",
        help="delay what is sent to the stages as the links described there would "
        "(EmulatedNetwork in runtime/protocol/emulation.py)",
    )
    advertise: Advertised | None
    data_security: DataSecurity
    request_timeout_s: float
    shutdown_grace_s: float


def parse_options(argv: list[str]) -> Options:
    """Exits with status 2 and a usage message when `argv` is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m runtime coordinator",
        description="Serve chat clients over the deployed plan: an OpenAI-compatible endpoint.",
    )
    add_options(parser, Options)
    add_data_options(parser)
    add_serving_options(parser, late="a request fails", grace_s=30.0)
    return Options(**vars(parser.parse_args(argv)))
