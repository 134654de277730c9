"""Where a process receives data frames, and the key it proves, as other processes name them.

Both reach `connect` calls of every peer, so both are parsed where they enter: a text that ZeroMQ
refuses would otherwise fail in the peer's threads.
"""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field

from runtime.protocol.trust import is_loopback

_PATTERN = r"^tcp://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(0|[1-9][0-9]{0,4})$"
# ZeroMQ refuses a host that begins with an underscore.
_LABEL = re.compile(r"^(?![-_])[A-Za-z0-9_-]{1,63}(?<!-)$")
# Systems read 127.1, 0x7f.1 and 2130706433 as addresses; none of them is a name.
_NUMBER = re.compile(r"^(0[xX][0-9A-Fa-f]*|[0-9]+)$")
_LONGEST_NAME = 253  # characters (RFC 1035)
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


class Place(NamedTuple):
    """`address` is None for a host name."""

    host: str
    port: int
    address: IPv4Address | IPv6Address | None

    @property
    def is_loopback(self) -> bool:
        """True if it names the machine itself, whichever machine that is."""
        return is_loopback(self.host)


def parse_endpoint(endpoint: str, *, listening: bool = False) -> Place:
    """The parts of `tcp://HOST:PORT`: a host name, an IPv4 address or an IPv6 address in brackets.

    Raises ValueError for anything else. What cannot be dialled, port 0 and an address that is no
    single machine's, is allowed only if `listening`.
    """
    found = re.fullmatch(_PATTERN, endpoint)
    if found is None or endpoint.endswith("\n"):
        raise ValueError(f"{_shown(endpoint)} is not tcp://HOST:PORT, such as tcp://10.0.0.7:7000")
    host, port = found[1], int(found[2])
    if not (0 if listening else 1) <= port <= 65_535:
        raise ValueError(f"{_shown(endpoint)} has port {port}; use one from 1 to 65535")
    address = _address(host, endpoint)
    if (
        not listening
        and address is not None
        and (address.is_unspecified or address.is_multicast or str(address) == "255.255.255.255")
    ):
        raise ValueError(
            f"{_shown(endpoint)} cannot be dialled: {address} is not the address of one machine"
        )
    return Place(host.strip("[]"), port, address)


def _address(host: str, endpoint: str) -> IPv4Address | IPv6Address | None:
    """None for a host name. Raises ValueError for what is neither."""
    labels = host.split(".")
    if host.startswith("[") or _NUMBER.match(labels[-1]):
        try:
            return ip_address(host.strip("[]"))
        except ValueError:
            raise ValueError(f"{_shown(endpoint)} has no valid IP address") from None
    if len(host) > _LONGEST_NAME or not all(_LABEL.match(label) for label in labels):
        raise ValueError(f"{_shown(endpoint)} has no valid host name")
    return None


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "…")


def _checked_endpoint(endpoint: str) -> str:
    parse_endpoint(endpoint)
    return endpoint


def _checked_listening(endpoint: str) -> str:
    parse_endpoint(endpoint, listening=True)
    return endpoint


def _checked_key(key: str) -> str:
    """Z85 (ZeroMQ RFC 32) writes four bytes as five digits, so the digits can say too much."""
    for start in range(0, len(key), 5):
        number = 0
        for character in key[start : start + 5]:
            digit = _Z85.find(character)
            if digit < 0:
                raise ValueError(f"{character!r} does not occur in a CURVE key")
            number = number * 85 + digit
        if number >= 2**32:
            raise ValueError(f"{key[start : start + 5]!r} is no part of a CURVE key")
    return key


Endpoint = Annotated[
    str,
    Field(max_length=300, json_schema_extra={"pattern": _PATTERN}),
    AfterValidator(_checked_endpoint),
]
# Where a process of this machine listens; port 0 is any free one.
ListenEndpoint = Annotated[str, Field(max_length=300), AfterValidator(_checked_listening)]
# A CURVE public key as 40 characters of Z85.
CurveKey = Annotated[str, Field(min_length=40, max_length=40), AfterValidator(_checked_key)]
