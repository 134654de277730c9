"""Addresses of this machine: which of them others can dial."""

import argparse
import ipaddress
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from runtime.protocol.data_security import DataSecurity
from runtime.protocol.endpoints import parse_endpoint

_ELSEWHERE = "192.0.2.1"  # for documentation (RFC 5737): outside of every network
DATA_HOST_HELP = (
    "address of this machine to receive data frames at (default: the one on the way to --server, "
    "which is loopback for a site on this machine)"
)
ADVERTISE_HELP = (
    "how others dial this process's data port, where that is not --data-host: behind NAT the "
    "outer address and its forwarded port; --data-host may then be 0.0.0.0"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertised:
    """What peers dial instead of the bound address; `port` 0: the port that is bound."""

    host: str
    port: int


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """--advertise and --data-security, of agents and coordinators alike."""
    parser.add_argument("--advertise", type=advertised, metavar="HOST[:PORT]", help=ADVERTISE_HELP)
    parser.add_argument(
        "--data-security",
        type=DataSecurity,
        choices=tuple(DataSecurity),
        default=DataSecurity.CURVE,
        help="clear: data frames without encryption, on trusted networks faster than 1 Gb/s; the "
        "same for all agents and the coordinator (default %(default)s)",
    )


def advertised(text: str) -> Advertised:
    """`HOST` or `HOST:PORT` of a command line. Raises ArgumentTypeError."""
    host, _, port = text.rpartition(":") if not text.endswith("]") else ("", "", "")
    if not host or (":" in host and not host.startswith("[")):
        host, port = text, ""
    host = host.strip("[]")
    try:
        place = parse_endpoint(f"tcp://{bracketed(host)}:{port or 1}")
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no address that others can dial ({error}); give HOST or HOST:PORT"
        ) from None
    return Advertised(host=place.host, port=int(port or 0))


def address_towards(url: str) -> str:
    """The source address of this machine's packets to the host of `url`; nothing is sent.

    While the host's name is not known: `outward_address`. Raises OSError without a route.
    """
    host = urlsplit(url).hostname or "localhost"
    try:
        family, _, _, _, there = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    except socket.gaierror:
        return outward_address()
    return _source_address(family, there)


def outward_address() -> str:
    """The source address of this machine's default route. Raises OSError if there is none."""
    return _source_address(socket.AF_INET, (_ELSEWHERE, 9))


def _source_address(family: int, there: Any) -> str:
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(there)
        return str(ipaddress.ip_address(probe.getsockname()[0].partition("%")[0]))


def is_wildcard(host: str) -> bool:
    """Whether it means every address of this machine: good to listen at, not to dial."""
    return host in ("0.0.0.0", "::", "*", "")  # noqa: S104 - compared, not bound


def endpoint_of(host: str, port: int) -> str:
    """`tcp://HOST:PORT`, an IPv6 address in brackets."""
    return f"tcp://{bracketed(host)}:{port}"


def bracketed(host: str) -> str:
    """As URLs and endpoints write it."""
    return f"[{host}]" if ":" in host else host
