"""Checks that a process may claim an endpoint and a public key.

A node's peers connect to its endpoint, and identify senders by their keys. So a process must not
claim another one's endpoint or key, nor lead peers to services of their own machines. The endpoint
need not be the address that the request came from: behind NAT, or with several interfaces, they
differ, and the CURVE handshake proves the identity to each peer.
"""

from collections.abc import Iterator
from datetime import datetime
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.db.models import Q
from django.http import HttpRequest

from helixweb.common.addresses import address_of, parsed_address
from helixweb.inventory.models import Coordinator, Node, NodeState
from helixweb.inventory.services.errors import JoinRefused
from runtime.protocol.endpoints import Place, parse_endpoint

KINDS: tuple[type[Node] | type[Coordinator], ...] = (Node, Coordinator)


class EndpointRefused(JoinRefused):
    """An endpoint or a key that this process cannot claim."""

    default_code = "endpoint_refused"


def is_of_this_machine(request: HttpRequest) -> bool:
    """True if the request comes from the site's own machine, by loopback or by its own address."""
    came_from = address_of(request)
    found = parsed_address(came_from)
    return found is not None and (found.is_loopback or came_from == request.META.get("SERVER_NAME"))


def check_claims(row: Node | Coordinator, *, now: datetime, from_this_machine: bool) -> None:
    """Refuse the key of another process of the cluster, the endpoint of one that is not lost, the
    site's own address, and a node's loopback endpoint if others would dial it from elsewhere.

    `row` says what it claims and may not be stored yet. Raises EndpointRefused.
    """
    claimed = parse_endpoint(row.data_endpoint)
    for other in _others(row, claimed.port):
        if other.data_public_key == row.data_public_key:
            raise EndpointRefused(
                f"The CURVE key of {row.name!r} is that of {other.name!r}; keys are secrets of one "
                "process: join with a --data-dir that was not copied."
            )
        is_there = other.state_at(now) is not NodeState.LOST
        if is_there and _same(_place_or_none(other.data_endpoint), claimed):
            raise EndpointRefused(
                f"data_endpoint {row.data_endpoint!r} is that of {other.name!r}; give another "
                "--data-port or --data-host, or remove that row on the cluster's page."
            )
    for url in _site_urls(row):
        if _same(_place_of(url), claimed):
            raise EndpointRefused(
                f"data_endpoint {row.data_endpoint!r} is where {url} answers; give another "
                "--data-port."
            )
    if isinstance(row, Node) and claimed.is_loopback and not from_this_machine:
        coordinators = Coordinator.unscoped.filter(cluster_id=row.cluster_id)
        places = [
            _place_or_none(one) for one in coordinators.values_list("data_endpoint", flat=True)
        ]
        if not any(place is not None and place.is_loopback for place in places):
            raise EndpointRefused(
                f"data_endpoint {row.data_endpoint!r} is loopback, which leads each peer to its "
                "own machine; give --data-host the address by which other machines reach this one. "
                "(If the whole cluster is one machine, join its coordinator first.)"
            )


def _place_or_none(endpoint: str) -> Place | None:
    """None for an unusable endpoint, such as a declared node's empty one."""
    try:
        return parse_endpoint(endpoint)
    except ValueError:
        return None


def _others(row: Node | Coordinator, port: int) -> Iterator[Node | Coordinator]:
    """Other processes with the same key or the same port."""
    is_alike = Q(data_public_key=row.data_public_key) | Q(data_endpoint__endswith=f":{port}")
    for kind in KINDS:
        yield from kind.unscoped.filter(is_alike, cluster_id=row.cluster_id).exclude(
            uuid=row.uuid or UUID(int=0)
        )


def _site_urls(row: Node | Coordinator) -> Iterator[str]:
    yield settings.HELIX_URL
    others = Coordinator.unscoped.filter(cluster_id=row.cluster_id).exclude(
        uuid=row.uuid or UUID(int=0)
    )
    yield from others.values_list("http_url", flat=True)


def _place_of(url: str) -> Place | None:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = parts.hostname or ""
    return _place_or_none(f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}")


def _same(one: Place | None, other: Place) -> bool:
    """Loopback has many names, and each leads to the same port."""
    if one is None or one.port != other.port:
        return False
    if one.is_loopback and other.is_loopback:
        return True
    if one.address is None or other.address is None:
        return one.host.lower() == other.host.lower()
    return one.address == other.address
