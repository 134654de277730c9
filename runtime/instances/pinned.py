"""HTTP to instances, of which some are known by one certificate: that one is taken under
any name, and no other, by any authority."""

import ssl
from collections import OrderedDict

import httpx

from runtime.instances.command_lines import InstanceAddress

_CERTIFICATE = "helix_certificate"
_MOST_PINNED = 512  # connections to those asked least lately are closed beyond


def pinned_to(address: InstanceAddress) -> dict[str, str]:
    """Extensions of a request to `address`, which a client of `instance_client` heeds."""
    return {_CERTIFICATE: address.certificate} if address.certificate else {}


def instance_client(
    *, timeout: httpx.Timeout | float, limits: httpx.Limits | None = None
) -> httpx.AsyncClient:
    """A client that asks every instance as its address says."""
    transport = PinnedTransport(limits or httpx.Limits())
    return httpx.AsyncClient(timeout=timeout, transport=transport, trust_env=False)


class PinnedTransport(httpx.AsyncBaseTransport):
    """A pool of connections for every certificate, and one for all others."""

    def __init__(self, limits: httpx.Limits) -> None:
        self._limits = limits
        self._others = httpx.AsyncHTTPTransport(limits=limits, trust_env=False)
        self._pinned: OrderedDict[str, httpx.AsyncHTTPTransport] = OrderedDict()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        pool = await self._pool_for(request)
        return await pool.handle_async_request(request)

    async def aclose(self) -> None:
        for pool in (self._others, *self._pinned.values()):
            await pool.aclose()
        self._pinned.clear()

    async def _pool_for(self, request: httpx.Request) -> httpx.AsyncHTTPTransport:
        certificate: str = request.extensions.get(_CERTIFICATE, "")
        if not certificate:
            return self._others
        pool = self._pinned.get(certificate)
        if pool is None:
            pool = httpx.AsyncHTTPTransport(
                verify=_context_of(certificate, request),
                limits=self._limits,
                trust_env=False,
            )
            self._pinned[certificate] = pool
            if len(self._pinned) > _MOST_PINNED:
                _, oldest = self._pinned.popitem(last=False)
                await oldest.aclose()
        self._pinned.move_to_end(certificate)
        return pool


def _context_of(certificate: str, request: httpx.Request) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the key is known, so the name says nothing more
    try:
        context.load_verify_locations(cadata=certificate)
    except (ssl.SSLError, ValueError) as error:
        raise httpx.ConnectError(
            f"the certificate that was told of it cannot be read: {error}", request=request
        ) from error
    return context
