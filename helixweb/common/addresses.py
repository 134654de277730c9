"""Client addresses of requests."""

import ipaddress
from collections.abc import Iterable
from typing import Any

from rest_framework.throttling import BaseThrottle

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def address_of(request: Any) -> str:
    """The client's address; `X-Forwarded-For` counts only behind a proxy (`HELIX_BEHIND_PROXY`)."""
    return str(BaseThrottle().get_ident(request) or "")[:64]


def parsed_network(text: str) -> Network:
    """`192.0.2.0/24`, `2001:db8::/32` or one address. Raises ValueError that says what is wrong."""
    try:
        return ipaddress.ip_network(text.strip(), strict=True)
    except ValueError as error:
        raise ValueError(
            f"{text[:60]!r} is no network ({error}); write it like 192.0.2.0/24 or 2001:db8::/32"
        ) from error


def parsed_address(text: str) -> Address | None:
    """The address, an IPv4 address within IPv6 as IPv4; None for anything else."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def is_within(address: str, networks: Iterable[str]) -> bool:
    """True if the address belongs to one of the networks, or if there are none."""
    wanted = [ipaddress.ip_network(text) for text in networks]
    found = parsed_address(address)
    return not wanted or (found is not None and any(found in network for network in wanted))
