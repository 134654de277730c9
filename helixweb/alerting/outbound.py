"""POSTs to URLs that users entered, without access to internal networks (SSRF).

The host is looked up once, every address found must be a public one (or one that
HELIX_WEBHOOK_NETWORKS allows), and the connection goes to an address that was checked, even if the
name has changed since. Redirects are not followed, proxies of the environment are not used, and
only the beginning of an answer is read. Resolvers and receivers have timeouts of some seconds.
"""

import asyncio
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from urllib.parse import urlsplit

from runtime.protocol.trust import issuers

LONGEST_URL = 500
WITHIN_S = 10.0
LOOKED_UP_WITHIN_S = 5.0
# A look-up that timed out ends when the machine's resolver gives it up.
MOST_LOOKUPS = 8
MOST_ANSWER_BYTES = 64 * 1024
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NAT64_LOCAL = ipaddress.ip_network("64:ff9b:1::/48")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Sequence[str]]

_lookups = threading.BoundedSemaphore(MOST_LOOKUPS)


class TargetRefused(Exception):
    """The target is not allowed; the message says why."""


class NotDelivered(Exception):
    """There was no answer; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A URL that may be right. `path` has the query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """Host and port as in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"http": 80, "https": 443}[self.scheme]
        return host if self.port == usual else f"{host}:{self.port}"


def parse_target(url: str) -> Target:
    """Parse a URL. Raises TargetRefused unless it is a plain http(s) URL."""
    if len(url) > LONGEST_URL:
        raise TargetRefused(f"the URL has {len(url)} characters; at most {LONGEST_URL} are allowed")
    if not url.isascii() or any(ord(letter) <= 32 or ord(letter) == 127 for letter in url):
        raise TargetRefused("the URL has blanks or other characters that must be written as %XX")
    if "\\" in url:
        raise TargetRefused(r"the URL has a '\'; write it as %5C")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise TargetRefused(f"this is no URL: {error}") from error
    if parts.scheme not in ("http", "https"):
        raise TargetRefused(
            f"the URL begins with {parts.scheme or url[:20]!r}; give http:// or https://"
        )
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        raise TargetRefused("the URL has a user name; leave it out, requests are signed instead")
    if not parts.hostname:
        raise TargetRefused("the URL names no host")
    if parts.fragment:
        raise TargetRefused("the URL has a fragment (#…), which is never sent; leave it out")
    if "%" in parts.hostname:
        raise TargetRefused("the host must be a plain name or address")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    usual = 443 if parts.scheme == "https" else 80
    return Target(scheme=parts.scheme, host=parts.hostname, port=port or usual, path=path)


def resolve(host: str, port: int) -> Sequence[str]:
    """Every address of the host, by the machine's resolver. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def looked_up(target: Target, resolve: Resolve, *, within_s: float) -> Sequence[str]:
    """The addresses that `resolve` finds within the time. Raises NotDelivered, and what `resolve`
    raises.

    The machine's resolver has no timeout, so a thread waits for it.
    """
    if not _lookups.acquire(timeout=within_s):
        message = f"{MOST_LOOKUPS} look-ups before it hang; see the name servers of this machine"
        raise NotDelivered(f"{target.host} was not looked up: {message}")
    found: Future[Sequence[str]] = Future()

    def look_up() -> None:
        try:
            found.set_result(resolve(target.host, target.port))
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            found.set_exception(error)
        finally:
            _lookups.release()

    threading.Thread(target=look_up, name=f"look-up of {target.host}", daemon=True).start()
    try:
        return found.result(within_s)
    except TimeoutError as error:
        raise NotDelivered(
            f"{target.host} was not looked up within {within_s:g} s; see the name servers of this "
            "machine"
        ) from error


def checked_address(
    target: Target,
    *,
    allowed: Sequence[Network],
    resolve: Resolve = resolve,
    within_s: float = LOOKED_UP_WITHIN_S,
) -> str:
    """The address to connect to. Raises TargetRefused, NotDelivered."""
    try:
        found = looked_up(target, resolve, within_s=within_s)
    except (OSError, UnicodeError) as error:
        raise NotDelivered(f"{target.host} cannot be looked up: {error}") from error
    if not found:
        raise NotDelivered(f"{target.host} has no address")
    for text in found:
        address = ipaddress.ip_address(text.partition("%")[0])
        if not _may_be_reached(address, allowed) or "%" in text:
            raise TargetRefused(
                f"{target.host} leads to {text}, which is not a public address; an administrator "
                "may allow its network in HELIX_WEBHOOK_NETWORKS"
            )
    return found[0]


def post(
    url: str,
    *,
    body: bytes,
    headers: dict[str, str],
    allowed: Sequence[Network],
    resolve: Resolve = resolve,
    within_s: float = WITHIN_S,
    looked_up_within_s: float = LOOKED_UP_WITHIN_S,
    verify: ssl.SSLContext | None = None,
) -> int:
    """The status of the answer. Raises TargetRefused, NotDelivered."""
    import httpx  # imported late, as models import this module and most processes do not send

    target = parse_target(url)
    address = checked_address(target, allowed=allowed, resolve=resolve, within_s=looked_up_within_s)
    sending = _post(
        target, address, body=body, headers=headers, verify=verify or issuers(), within_s=within_s
    )
    try:
        return asyncio.run(sending)
    except (TimeoutError, httpx.TimeoutException) as error:
        raise NotDelivered(f"no whole answer within {within_s:g} s") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NotDelivered(f"{type(error).__name__}: {error}"[:400]) from error


async def _post(
    target: Target,
    address: str,
    *,
    body: bytes,
    headers: dict[str, str],
    verify: ssl.SSLContext,
    within_s: float,
) -> int:
    import httpx

    host = f"[{address}]" if ":" in address else address
    client = httpx.AsyncClient(
        trust_env=False, follow_redirects=False, timeout=WITHIN_S, verify=verify
    )
    async with (
        asyncio.timeout(within_s),
        client,
        client.stream(
            "POST",
            f"{target.scheme}://{host}:{target.port}{target.path}",
            content=body,
            headers={**headers, "Host": target.authority, "Connection": "close"},
            # The certificate must match the host name, although the connection goes to the address.
            extensions={"sni_hostname": target.host},
        ) as answer,
    ):
        read = 0
        async for piece in answer.aiter_raw():
            read += len(piece)
            if read > MOST_ANSWER_BYTES:
                break
        return answer.status_code


def _may_be_reached(address: Address, allowed: Sequence[Network]) -> bool:
    """Addresses of the old protocol within those of the new count as what they lead to."""
    inner = _within(address)
    if inner is not None:
        return _may_be_reached(inner, allowed)
    if any(address.version == network.version and address in network for network in allowed):
        return True
    return (
        address.is_global
        and not (isinstance(address, ipaddress.IPv6Address) and address.is_site_local)
        and not address.is_multicast
        and not address.is_unspecified
        and not address.is_reserved
    )


def _within(address: Address) -> ipaddress.IPv4Address | None:
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64 or address in _NAT64_LOCAL:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if int(address) >> 32 == 0 and int(address) > 1:  # IPv4-compatible, long out of use
        return ipaddress.IPv4Address(int(address))
    return None
