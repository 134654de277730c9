"""From where a request comes: who dials, or for whom a trusted proxy does."""

import argparse
import ipaddress
from collections.abc import Iterable, Sequence

from starlette.datastructures import Headers
from starlette.types import Scope

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks(text: str) -> tuple[Network, ...]:
    """An option's `127.0.0.1,192.0.2.0/28`."""
    try:
        return tuple(ipaddress.ip_network(word.strip()) for word in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{error}; give networks like 127.0.0.1,192.0.2.0/28"
        ) from error


def client_address(scope: Scope, *, proxies: Sequence[Network]) -> str:
    """Empty where it is not known.

    Each proxy adds whom it was asked by to the end of `X-Forwarded-For`; what stands before the
    first that is no proxy of ours, anybody may have made up.
    """
    client = scope.get("client")
    dialled = str(client[0]) if client else ""
    if not is_within(dialled, proxies):
        return dialled
    told = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).split(",")
    addresses = [word.strip() for word in told]
    return next((one for one in reversed(addresses) if not is_within(one, proxies)), addresses[0])


def is_within(address: str, networks: Iterable[Network]) -> bool:
    """Whether it is an address of one of them."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return any(found in network for network in networks)
