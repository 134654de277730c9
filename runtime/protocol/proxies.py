"""Proxies that the environment names (HTTP_PROXY, NO_PROXY and others): which servers are asked
through them."""

import ssl
from ipaddress import ip_address
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from runtime.protocol.addresses import address_towards
from runtime.protocol.complaints import StartRefused
from runtime.protocol.trust import stays_here


class BadProxy(StartRefused):
    """A variable that no request can be made with; the message names the remedy."""


def may_use_proxy(url: str) -> bool:
    """False for an address of this machine, to which no proxy leads. Raises BadProxy."""
    if _is_here(url):
        return False
    try:
        httpx.Client(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)).close()  # trusts no issuer
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        raise BadProxy(
            f"the proxy variables of the environment cannot be used to reach {url}: {error}; "
            "correct HTTP_PROXY, HTTPS_PROXY, ALL_PROXY or NO_PROXY, or set NO_PROXY=* to use none"
        ) from None
    return True


def proxy_remedy(url: str) -> str:
    """The end of a message about `url` that does not answer; empty where no proxy was asked."""
    parts, proxies = urlsplit(url), getproxies()
    host = parts.hostname or ""
    name = next((one for one in (parts.scheme, "all") if proxies.get(one)), None)
    if name is None or _is_here(url) or proxy_bypass(host):
        return ""
    return f"; the proxy of {name.upper()}_PROXY was asked: add {host} to NO_PROXY to do without"


def _is_here(url: str) -> bool:
    """Whether the host is this machine: its loopback, or another of its addresses."""
    if stays_here(url):
        return True
    try:
        address = ip_address(urlsplit(url).hostname or "")
        return address_towards(url) == str(address)
    except (OSError, ValueError):  # no route, or a name, which is not looked up
        return False
