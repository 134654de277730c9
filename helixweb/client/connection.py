"""One server and one key: sends requests, turns refusals into exceptions, walks pages."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar
from urllib.parse import quote, urlsplit

import httpx

from helixweb.client.errors import ClientError, NotTheApi, Unreachable, problem_of
from runtime.protocol.trust import trusting, why_untrusted

Row = TypeVar("Row")

API = "/api/v1"
PAGE_ROWS = 500
TIMEOUT_S = 30.0
MOST_TRIES = 3
_BROKEN_OFF = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)
_LONGEST_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Row]):
    """Some rows of a list; `count` is how many there are in all."""

    count: int
    results: list[Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagged(Generic[Row]):
    """A row and what `if_match` wants, to change it only if nobody else did; None: not told."""

    row: Row
    etag: str | None


class BadAddress(ClientError):
    """Not the URL of a server."""


class Connection:
    """Close it, or use it in a `with`. `key` is `hlx_…`, empty for none; `ca` are certificates to
    trust beside the system's issuers."""

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
            # Loading the issuers takes 20 ms. Redirects to https are not followed.
            verify=False if urlsplit(self.url).scheme == "http" else trusting(ca),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
        """The decoded JSON of the answer, None without any. Raises ClientError."""
        answer = self.send(method, path, query=query, json=body, headers=headers)
        return self.decoded(answer)

    def tagged(self, path: str, *, query: Mapping[str, Any] | None = None) -> Tagged[Any]:
        """A row and its ETag."""
        answer = self.send("GET", path, query=query)
        return Tagged(row=self.decoded(answer), etag=answer.headers.get("ETag"))

    def pages(self, path: str, *, query: Mapping[str, Any]) -> Iterator[Any]:
        """Every row of a list, read page by page."""
        offset = int(query.get("offset") or 0)
        left = query.get("limit")
        while left is None or left > 0:
            limit = PAGE_ROWS if left is None else min(PAGE_ROWS, left)
            page = self.call("GET", path, query={**query, "offset": offset, "limit": limit})
            rows = page["results"]
            yield from rows
            offset += len(rows)
            left = None if left is None else left - len(rows)
            if not rows or offset >= page["count"]:
                return

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
        """The answer, whole. Raises ClientError unless it is a success.

        What breaks off is asked again where that does nothing twice: reads, and what has an
        Idempotency-Key.
        """
        told = {name: value for name, value in (headers or {}).items() if value}
        tries = MOST_TRIES if method == "GET" or "Idempotency-Key" in told else 1
        while True:
            try:
                answer = self.http.request(
                    method,
                    f"{API}{path}",
                    params=plain_query(query or {}),
                    json=json,
                    content=content,
                    headers=told,
                )
            except _BROKEN_OFF as error:
                tries -= 1
                if not tries:
                    raise unreachable(self.url, error) from error
            except httpx.TransportError as error:
                raise unreachable(self.url, error) from error
            else:
                return self.checked(answer)

    def checked(self, answer: httpx.Response) -> httpx.Response:
        """Raises ClientError unless it is a success; its body must have been read."""
        if answer.is_success:
            return answer
        if answer.is_redirect:
            where = answer.headers.get("Location", "")
            raise NotTheApi(
                f"{self.url} sends elsewhere ({where[:_LONGEST_SHOWN]}); give the address it names"
            )
        raise problem_of(
            status=answer.status_code,
            document=_document(answer),
            retry_after_s=_seconds(answer.headers.get("Retry-After")),
        )

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
    """The server's address without a slash at its end. Raises BadAddress."""
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
    """Raises BadAddress for what no header can carry."""
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
    """As the API reads them: a list as the name again and again, nothing for None."""
    pairs = list[tuple[str, str]]()
    for name, value in query.items():
        several = isinstance(value, Sequence) and not isinstance(value, str)
        pairs += [(name, _plain(one)) for one in (value if several else [value]) if one is not None]
    return httpx.QueryParams(tuple(pairs))


def with_commas(query: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The same with the lists of these names as one text each."""
    joined = {
        name: ",".join(map(_plain, query[name])) for name in names if query.get(name) is not None
    }
    return {**query, **joined}


def path_part(value: object) -> str:
    """One segment of a path; nothing in it ends the segment."""
    return quote(str(value), safe="")


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


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.isdecimal() else None
