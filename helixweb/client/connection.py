"""The HTTP connection to one site: requests, refusals as exceptions, pages of lists."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self, TypeAlias
from urllib.parse import urlsplit

import httpx

from helixweb.client.errors import ClientError, NotTheApi, Unreachable, problem_of
from runtime.protocol.trust import trusting, why_untrusted

Row: TypeAlias = dict[str, Any]

API = "/api/v1"
TIMEOUT_S = 30.0
MOST_TRIES = 3
_BROKEN_OFF = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)
_LONGEST_SHOWN = 200
# Query parameters whose lists are joined by commas; all others are repeated for each value.
_JOINED, _JOINED_ENDING = ("fields", "ordering"), "__in"


class BadAddress(ClientError):
    """The URL or the API key is malformed."""


class Connection:
    """An open connection; close it, or use it in a `with` statement.

    `key` is an API key (`hlx_…`) or empty. `ca` is a file of certificates that are trusted in
    addition to the system's.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str = "",
        timeout_s: float = TIMEOUT_S,
        ca: Path | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = checked_url(url)
        headers = {"Accept": "application/json", "User-Agent": "helixweb-client"}
        if key:
            headers["Authorization"] = f"Bearer {checked_key(key)}"
        self.http = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, 5.0)),
            transport=transport,
            # Plain http skips loading the certificates (20 ms); redirects are not followed.
            verify=False if urlsplit(self.url).scheme == "http" else trusting(ca),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self.http.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> Any:
        """The decoded JSON of the answer, None if it is empty. Raises ClientError."""
        answer = self.send(method, path, query=query, json=body, headers=headers)
        return self.decoded(answer)

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        json: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> httpx.Response:
        """Send a request; the complete answer. Raises ClientError unless it is a success.

        Broken connections are retried for reads and for requests with an Idempotency-Key.
        """
        sent = {name: value for name, value in (headers or {}).items() if value}
        tries = MOST_TRIES if method == "GET" or "Idempotency-Key" in sent else 1
        while True:
            try:
                answer = self.http.request(
                    method,
                    f"{API}{path}",
                    params=plain_query(query or {}),
                    json=json,
                    content=content,
                    headers=sent,
                )
            except httpx.TransportError as error:
                tries -= 1
                if not tries or not isinstance(error, _BROKEN_OFF):
                    raise unreachable(self.url, error) from error
            else:
                return self.checked(answer)

    def checked(self, answer: httpx.Response) -> httpx.Response:
        """`answer`, whose body has been read. Raises ClientError unless it is a success."""
        if answer.is_success:
            return answer
        if answer.is_redirect:
            where = answer.headers.get("Location", "")
            raise NotTheApi(
                f"{self.url} sends elsewhere ({where[:_LONGEST_SHOWN]}); give the address it names"
            )
        raise problem_of(answer, _document(answer))

    def decoded(self, answer: httpx.Response) -> Any:
        if not answer.content:
            return None
        try:
            return answer.json()
        except ValueError as error:
            raise NotTheApi(
                f"{answer.request.url} answered {_shortened(answer.text)} instead of JSON; is "
                f"{self.url} the address of HelixWeb?"
            ) from error


def checked_url(url: str) -> str:
    """The server's address without a trailing slash. Raises BadAddress."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits or parts.query or parts.fragment or parts.username is not None:
        raise BadAddress(
            f"{url!r} is no address of a server; give one like https://helix.example.org"
        )
    return url.rstrip("/").removesuffix(API)


def checked_key(key: str) -> str:
    """`key`. Raises BadAddress if it has characters that a header cannot carry."""
    if not key.isascii() or not key.isprintable() or " " in key:
        raise BadAddress("the API key has characters that no key has; copy it again (hlx_…)")
    return key


def unreachable(url: str, error: httpx.TransportError) -> Unreachable:
    if why := why_untrusted(error):
        return Unreachable(
            f"the certificate of {url} is not trusted: {why}; give its issuer with --ca FILE"
        )
    reason = str(error) or type(error).__name__
    return Unreachable(
        f"{url} does not answer ({reason}); is it running, and is the address right?"
    )


def plain_query(query: Mapping[str, Any]) -> httpx.QueryParams:
    """Query parameters as the API reads them; None is left out."""
    pairs = list[tuple[str, str]]()
    for name, value in query.items():
        if isinstance(value, str) or not isinstance(value, Iterable):
            pairs += [] if value is None else [(name, _plain(value))]
        elif name in _JOINED or name.endswith(_JOINED_ENDING):
            pairs.append((name, ",".join(map(_plain, value))))
        else:
            pairs += [(name, _plain(one)) for one in value]
    return httpx.QueryParams(tuple(pairs))


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _document(answer: httpx.Response) -> Mapping[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document
    return {"title": answer.reason_phrase, "detail": _shortened(answer.text)}


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_SHOWN else f"{line[:_LONGEST_SHOWN]}…"
