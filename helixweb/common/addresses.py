"""Where requests come from."""

import ipaddress
from collections.abc import Iterable
from typing import Any

from rest_framework.throttling import BaseThrottle

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


def is_within(address: str, networks: Iterable[str]) -> bool:
    """Whether the address belongs to one of them; none at all admit everybody."""
    wanted = [ipaddress.ip_network(text) for text in networks]
    if not wanted:
        return True
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return any(found in network for network in wanted)
