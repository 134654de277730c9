"""Which ports of others a process reaches: what it reports, and the sentences for a failure."""

import hashlib
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from runtime.protocol.addresses import endpoint_of
from runtime.protocol.endpoints import Endpoint, parse_endpoint
from runtime.protocol.message import Message
from runtime.protocol.translated import gettext_noop as _

MOST_ENDPOINTS = 1024
Endpoints = Annotated[tuple[Endpoint, ...], Field(max_length=MOST_ENDPOINTS)]

CANNOT_REACH = _(
    "%(source)s cannot reach %(target)s at %(place)s: allow this TCP port through the firewall; if "
    "%(target)s is behind NAT, forward a port to it and restart it with --advertise"
)
CANNOT_REACH_LOOPBACK = _(
    "%(source)s cannot reach %(target)s at %(place)s, which is loopback: restart %(target)s with "
    "--data-host and an address that other machines can dial"
)
CANNOT_REACH_REFUSED = _(
    "%(source)s is refused at %(place)s, where %(target)s listens: allow this TCP port through the "
    "firewall, or restart %(target)s with --advertise and the address that leads to it"
)
CANNOT_FETCH = _(
    "%(source)s cannot fetch weights from %(target)s at %(place)s and takes them from other nodes, "
    "the site or the hub: allow this TCP port through the firewall (behind NAT, forward it under "
    "the same number), or restart %(target)s with --weights-port and an open port"
)


class MeasuredRate(Message):
    """What one direction of a link does; `is_floor`: at least that, it was never seen full."""

    bytes_per_s: float = Field(gt=0)
    is_floor: bool = False


class MeasuredLink(Message):
    """Both directions of a link, and its round trip while it is idle."""

    rtt_s: float = Field(ge=0)
    sent: MeasuredRate
    received: MeasuredRate


class LinksToMeasure(Message):
    """To which data ports a process measures the links, with the `key` of its cluster."""

    key: str = Field(min_length=16, max_length=128, repr=False)
    endpoints: Endpoints


class Reach(Message):
    """Which endpoints of the list that the site sent a process cannot reach, and why.

    `tried` is the `digest_of` that list, empty before the first round of attempts has ended.
    `refused`: a machine answers, but nothing listens there. `listens`: the process has listened at
    its own data port for some seconds. `measures`: it takes part in measurements of links now;
    `answers`: also in those that begin with a connection to its data port; `measured` are those
    that the site asked for last. `weights_port` is where it serves weights, at the host of its data
    port; null: nowhere.
    """

    tried: str = Field(default="", max_length=64)
    failing: dict[Endpoint, Annotated[str, Field(max_length=200)]] = Field(
        default={}, max_length=MOST_ENDPOINTS
    )
    refused: Endpoints = ()
    listens: bool = False
    measures: bool = False
    answers: bool = False
    weights_port: int | None = Field(default=None, ge=1, le=65535)
    measured: dict[Endpoint, MeasuredLink] = Field(default={}, max_length=MOST_ENDPOINTS)


def digest_of(endpoints: Sequence[str]) -> str:
    """Names a list of endpoints; empty for an empty list."""
    if not endpoints:
        return ""
    return hashlib.sha256("\n".join(endpoints).encode()).hexdigest()[:16]


def weights_endpoint(data_endpoint: str, port: int | None) -> str:
    """Where others fetch weights from the process with this data endpoint; empty: nowhere."""
    return endpoint_of(parse_endpoint(data_endpoint).host, port) if port else ""


def why_cut(endpoint: str, *, is_refused: bool = False) -> str:
    """The template for a data port that is not reached; `cut_fields` fills it in."""
    if is_refused:
        return CANNOT_REACH_REFUSED
    return CANNOT_REACH_LOOPBACK if parse_endpoint(endpoint).is_loopback else CANNOT_REACH


def cut_fields(source: str, target: str, endpoint: str) -> dict[str, str]:
    """Both processes by name, and the place as HOST:PORT."""
    return {"source": source, "target": target, "place": endpoint.removeprefix("tcp://")}


def cannot_reach(source: str, target: str, endpoint: str) -> str:
    """One sentence with the remedy, in English."""
    return why_cut(endpoint) % cut_fields(source, target, endpoint)
