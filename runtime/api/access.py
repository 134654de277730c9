"""Who may use the endpoint: API keys, known by keyed hashes only, each within its terms.

A key may be bound to networks: the client is the process that dials, or for a trusted proxy the one
that the proxy names.
"""

import argparse
import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Sequence
from ipaddress import ip_network

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from runtime.api.error_answers import error_response
from runtime.api.spending import Spending
from runtime.protocol.control import AdmittedKey, KeySpending
from runtime.protocol.openai import ApiError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
OPEN_PATHS = frozenset({"/health"})


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

    Each proxy adds the address that asked it to the end of `X-Forwarded-For`; anyone may have made
    up what stands before the first that is no proxy of ours.
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


class ApiKeys:
    """Owns the API keys that are admitted; every OpenAI application asks it.

    The keys admitted now; replaced whole when helixweb sends others.
    """

    def __init__(
        self,
        hashes: Iterable[str] = (),
        *,
        spending: Spending | None = None,
        proxies: Iterable[Network] = (),
    ) -> None:
        """`proxies`: who is believed for whom it asks."""
        self.spending = spending or Spending()
        self.proxies = tuple(proxies)
        self._terms: dict[str, AdmittedKey] = {}
        self._peppers: tuple[bytes, ...] = ()
        self._names: dict[str, str] = {}  # of keys that were used here, by owner
        self.replace(hashes)

    def replace(self, hashes: Iterable[str]) -> None:
        """`hashes`: hex SHA-256 of each whole key that is held to nothing."""
        self._hashes = tuple(value.lower().encode() for value in hashes)

    def admit(self, keys: Iterable[AdmittedKey], *, peppers: Iterable[str]) -> None:
        """The keys of people, and what their hashes are made with."""
        self._terms = {key.hash: key for key in keys}
        self._peppers = tuple(pepper.encode() for pepper in peppers)

    def check(self, authorization: str | None, *, address: str = "") -> str:
        """The SHA-256 of the key. Raises ApiError 401 unless the header is `Bearer KEY` with a
        known one, 403 for one that may not be used from that address."""
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise _unauthorized(
                "no API key was given; send the header 'Authorization: Bearer KEY' with a key "
                "made in the web interface"
            )
        given = hashlib.sha256(key.strip().encode()).hexdigest()
        # Every hash is compared, each in constant time: the answer's delay tells nothing.
        if any([hmac.compare_digest(given.encode(), known) for known in self._hashes]):
            return given
        terms = self._terms_of(given)
        if terms is None:
            raise _unauthorized(
                "this API key is not known here; it may have been revoked: make another in the "
                "web interface"
            )
        if terms.expires_at is not None and terms.expires_at <= self.spending.now():
            raise _unauthorized("this API key has expired; make another in the web interface")
        if terms.networks and not is_within(address, map(ip_network, terms.networks)):
            raise ApiError(
                message=f"this API key may not be used from {address or 'there'}; it is for "
                f"{', '.join(terms.networks)}",
                code="ip_not_authorized",
            )
        self._names[given] = terms.key
        return given

    def count(self, owner: str) -> None:
        """One more request of the key. Raises ApiError 429 if it is one too many for its terms.

        Tokens are known when they are there: the request that reaches a budget goes on to its end,
        and the next one is refused.
        """
        terms, spending = self._terms_of(owner), self.spending
        spent = spending.of(owner)
        if terms is not None:
            if _reached(terms.requests_per_min, spent.minute_requests):
                raise _too_many(
                    f"this API key may send {terms.requests_per_min} requests a minute",
                    code="rate_limit_exceeded",
                    wait_s=spending.minute_left_s(),
                )
            if _reached(terms.tokens_per_min, spent.minute_tokens):
                raise _too_many(
                    f"this API key may use {terms.tokens_per_min} tokens a minute, and has used "
                    f"{spent.minute_tokens}",
                    code="rate_limit_exceeded",
                    wait_s=spending.minute_left_s(),
                )
            today = max(spent.day_tokens, terms.tokens_today)
            if _reached(terms.tokens_per_day, today):
                raise _too_many(
                    f"this API key may use {terms.tokens_per_day} tokens a day, and has used "
                    f"{today}; the next day begins at midnight UTC",
                    code="insufficient_quota",
                    wait_s=spending.day_left_s(),
                )
        spending.asked(owner)

    def spent(self) -> dict[str, KeySpending]:
        """Of every key of a person that was used here, by how people know it, since the start."""
        told = {}
        for owner, name in self._names.items():
            spent = self.spending.of(owner)
            told[name] = KeySpending(
                requests=spent.requests,
                prompt_tokens=spent.prompt_tokens,
                output_tokens=spent.output_tokens,
            )
        return told

    def _terms_of(self, owner: str) -> AdmittedKey | None:
        for pepper in self._peppers:
            digest = hmac.new(pepper, owner.encode(), hashlib.sha256).hexdigest()
            if digest in self._terms:
                return self._terms[digest]
        return None


class RequireApiKey:
    """ASGI middleware: every path but `OPEN_PATHS` needs a key, so a new route cannot forget it.

    `owner` of the request's state is the hash of its key. What is posted asks a model, and counts.
    """

    def __init__(self, app: ASGIApp, *, keys: ApiKeys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            try:
                owner = self._keys.check(
                    Headers(scope=scope).get("authorization"),
                    address=client_address(scope, proxies=self._keys.proxies),
                )
                if scope["method"] == "POST":
                    self._keys.count(owner)
            except ApiError as error:
                await error_response(error, scope)(scope, receive, send)
                return
            scope.setdefault("state", {})["owner"] = owner
        await self._app(scope, receive, send)


def _reached(limit: int | None, spent: int) -> bool:
    return limit is not None and spent >= limit


def _unauthorized(message: str) -> ApiError:
    return ApiError(message=message, code="invalid_api_key")


def _too_many(message: str, *, code: str, wait_s: float) -> ApiError:
    return ApiError(message=message, code=code, retry_after_s=max(1.0, wait_s))
