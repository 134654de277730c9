"""Asks an instance how it is and how full.

An answer that is none is a trouble to report, never an error. A server may give its answer drop by
drop: each answer must be whole within a time and a size. Some instances are known by one
certificate: that one is taken under any name, and no other, by any authority.
"""

import asyncio
import json
import ssl
from collections import OrderedDict
from dataclasses import dataclass

import httpx

from runtime.instances.engine_load import MAX_PAGE_BYTES, EngineLoad, read_load
from runtime.protocol.instance_orders import InstanceAddress

_CERTIFICATE = "helix_certificate"
_MOST_PINNED = 512  # connections to those asked least lately are closed beyond
PROBE_TIMEOUT_S = 5.0
NO_ANSWER = "it does not answer"
_MOST_SHOWN = 120


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


class _NoAnswer(Exception):
    """What came is not whole in time, or is too much."""


@dataclass(frozen=True, slots=True)
class AskedInstance:
    """An instance that is asked over HTTP."""

    http: httpx.AsyncClient
    address: InstanceAddress

    async def trouble(self) -> str:
        """By /health, where there is one, and by /v1/models, which must name the model, where it
        lists models."""
        address = self.address
        try:
            health = await self._get("/health")
            if health.status_code != 404 and not health.is_success:
                return f"/health answers {health.status_code}{_said(health)}"
            if not address.lists_model:
                return ""
            models = await self._get("/v1/models")
        except (httpx.HTTPError, httpx.InvalidURL, _NoAnswer) as error:
            return f"{NO_ANSWER}: {str(error) or type(error).__name__}"
        if not models.is_success:
            return f"/v1/models answers {models.status_code}{_said(models)}"
        names = _names(models)
        if names is None:
            return f"/v1/models answers what is no list of models{_said(models)}"
        if address.model not in names:
            return f"it does not serve {address.model!r} but {', '.join(names) or 'nothing'}"
        return ""

    async def load(self) -> EngineLoad:
        """What /metrics says; nothing where the backend has none, or does not answer."""
        if not self.address.has_metrics:
            return EngineLoad()
        try:
            page = await self._get("/metrics")
        except _NoAnswer as error:
            return EngineLoad(complaint=str(error))
        except (httpx.HTTPError, httpx.InvalidURL):
            return EngineLoad()  # its health tells
        if page.status_code == 404:
            return EngineLoad(
                complaint="it has no /metrics; only requests sent from here are counted"
            )
        if not page.is_success:
            return EngineLoad(complaint=f"/metrics answers {page.status_code}{_said(page)}")
        return read_load(page.text)

    async def _get(self, path: str) -> httpx.Response:
        """Raises _NoAnswer, httpx.HTTPError, httpx.InvalidURL."""
        parts, size, address = [], 0, self.address
        try:
            async with (
                asyncio.timeout(PROBE_TIMEOUT_S),
                self.http.stream(
                    "GET",
                    f"{address.url}{path}",
                    headers=headers_of(address),
                    timeout=PROBE_TIMEOUT_S,
                    extensions=pinned_to(address),
                ) as answer,
            ):
                async for part in answer.aiter_bytes():
                    size += len(part)
                    if size > MAX_PAGE_BYTES:
                        raise _NoAnswer(f"{path} answers more than {MAX_PAGE_BYTES} bytes")
                    parts.append(part)
        except UnicodeError as error:  # what is no name of a host, as `xn--`
            raise _NoAnswer(f"{address.url} is no address ({error})") from error
        except TimeoutError as error:
            raise _NoAnswer(f"{path} is not answered whole within {PROBE_TIMEOUT_S:g} s") from error
        return httpx.Response(answer.status_code, content=b"".join(parts))


def headers_of(address: InstanceAddress) -> dict[str, str]:
    return {"Authorization": f"Bearer {address.api_key}"} if address.api_key else {}


def _names(answer: httpx.Response) -> list[str] | None:
    try:
        body = answer.json()
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        return None
    data = body.get("data") if isinstance(body, dict) else None
    if not isinstance(data, list):
        return None
    ids = [entry.get("id") for entry in data if isinstance(entry, dict)]
    return [name for name in ids if isinstance(name, str)]


def _said(answer: httpx.Response) -> str:
    text = " ".join(answer.text[: 4 * _MOST_SHOWN].split())[:_MOST_SHOWN]
    return f": {text}" if text else ""
