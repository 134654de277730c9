"""A client of the REST API, for scripts and for the command line. Needs httpx, no Django.

    with Client("https://helix.example.org", key="hlx_…") as client:
        for node in client.nodes.all(cluster=1):
            print(node["name"], node["state"])

Rows are plain dicts; refusals are exceptions. Queries and events: `wire.py`."""

import json
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias
from urllib.parse import quote, urlsplit

import httpx

from helixweb.client.wire import Event, plain_query, read_events
from runtime.protocol.proxies import BadProxy, may_use_proxy, proxy_remedy
from runtime.protocol.trust import trusting, why_untrusted

Row: TypeAlias = dict[str, Any]

API = "/api/v1"
TIMEOUT_S = 30.0
MOST_TRIES = 3
PAGE_ROWS = 500
# The server sends an event at least every 15 s; a stream that misses three of these is dead.
STREAM_TIMEOUT = httpx.Timeout(45.0, connect=5.0)
LONGEST_PAUSE_S = 15.0
_BROKEN_OFF = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)
_LONGEST_SHOWN = 200


class ClientError(Exception):
    """Base class; the message names the value at fault and the remedy."""


class BadAddress(ClientError):
    """The URL or the API key is malformed."""


class Unreachable(ClientError):
    """No answer: connection refused or broken, unknown host, timeout."""


class NotTheApi(ClientError):
    """The answer is not from HelixWeb's REST API."""


class FieldError(NamedTuple):
    """One entry of a problem's `errors`; `field` may be empty."""

    field: str
    message: str


class Problem(ClientError):
    """The server refused the request (RFC 9457); subclasses by HTTP status."""

    _by_status: ClassVar[dict[int, type["Problem"]]] = {}

    def __init_subclass__(cls, *, statuses: Iterable[int]) -> None:
        Problem._by_status.update(dict.fromkeys(statuses, cls))

    def __init__(self, answer: httpx.Response, document: Mapping[str, Any]) -> None:
        wait = answer.headers.get("Retry-After", "")
        self.status = answer.status_code
        self.retry_after_s = float(wait) if wait.isdecimal() else None
        self.type = str(document.get("type", ""))
        self.title = str(document.get("title", f"HTTP {self.status}"))
        self.detail = str(document.get("detail", ""))
        self.document = dict(document)
        listed = document.get("errors")
        self.errors = tuple(
            FieldError(str(one.get("field", "")), str(one.get("message", "")))
            for one in (listed if isinstance(listed, list) else [])
            if isinstance(one, Mapping)
        )
        super().__init__(self.detail or self.title)

    @staticmethod
    def of(answer: httpx.Response, document: Mapping[str, Any]) -> "Problem":
        return Problem._by_status.get(answer.status_code, Problem)(answer, document)


class Malformed(Problem, statuses=(400, 413, 415, 422)):
    """A value is invalid; `errors` name the fields."""


class NotAuthenticated(Problem, statuses=(401,)):
    """The key is missing, unknown, revoked or expired."""


class NotAllowed(Problem, statuses=(403,)):
    """The key or its owner lacks the permission."""


class NotFound(Problem, statuses=(404,)):
    """No row with that id, or no such address."""


class Conflict(Problem, statuses=(409,)):
    """The state of the row forbids it; `detail` has the remedy."""


class Changed(Conflict, statuses=(412,)):
    """The row was changed since it was read; read it again before the next try."""


class TooManyRequests(Problem, statuses=(429,)):
    """Retry after `retry_after_s` seconds."""


class ServerFailed(Problem, statuses=range(500, 600)):
    """A fault of the server."""


class Client:
    """An open connection; close it, or use it in a `with` statement.

    Its attributes are collections: `plan_runs` is `/api/v1/plan-runs/`. `key` is an API key
    (`hlx_…`) or empty. `ca` is a file of certificates that are trusted in addition to the system's.
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
            trust_env=trusts_environment(self.url),
            verify=verification(self.url, ca),
        )

    def __getattr__(self, name: str) -> "Rows":
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return Rows(self, name.replace("_", "-"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self.http.close()

    def call(self, method: str, path: str, **request: Any) -> Any:
        """Like `send`; the decoded JSON of the answer, None if it is empty."""
        return self.decoded(self.send(method, path, **request))

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> httpx.Response:
        """Send a request; the complete answer. Raises ClientError unless it is a success.

        Broken connections are retried for reads and for requests with an Idempotency-Key.
        """
        named = {name: value for name, value in (headers or {}).items() if value}
        sent = httpx.Headers(named, encoding="utf-8")
        tries = MOST_TRIES if method == "GET" or "Idempotency-Key" in sent else 1
        params = plain_query(query or {})
        while True:
            try:
                answer = self.http.request(
                    method, API + path, params=params, json=body, content=content, headers=sent
                )
            except httpx.InvalidURL as error:
                raise _no_address(path, error) from error
            except httpx.TransportError as error:
                tries -= 1
                if not tries or not isinstance(error, _BROKEN_OFF):
                    raise unreachable(self.url, error) from error
            else:
                return self._checked(answer)

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

    def checks(self) -> dict[str, str]:
        """The state of each part of the site; empty where a proxy does not pass `/readyz` on."""
        try:
            answer = self.http.get("/readyz")
        except httpx.TransportError as error:
            raise unreachable(self.url, error) from error
        is_json = answer.headers.get("Content-Type", "").startswith("application/json")
        return self.decoded(answer).get("checks", {}) if is_json else {}

    def follow(
        self,
        topics: Sequence[str],
        *,
        last_id: str = "",
        tell: Callable[[str], None] = lambda text: None,
        pause: Callable[[float], None] = time.sleep,
    ) -> Iterator[Event]:
        """Events of topics such as `cluster:1`, without end; `tell` gets a message at each break.

        Raises any ClientError on the first try; later, only refusals end it.
        """
        pause_s, has_begun = 1.0, False
        while True:
            try:
                for event in self._stream(topics, last_id):
                    has_begun, pause_s, last_id = True, 1.0, event.id or last_id
                    yield event
                has_begun = True
            except (Unreachable, ServerFailed, TooManyRequests) as error:
                if not has_begun:
                    raise
                tell(f"{error}; trying again")
                if isinstance(error, TooManyRequests):
                    pause_s = max(pause_s, error.retry_after_s or 0.0)
            pause(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _stream(self, topics: Sequence[str], last_id: str) -> Iterator[Event]:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        params, path = {"topics": ",".join(topics)}, f"{API}/events/"
        try:
            with self.http.stream(
                "GET", path, params=params, headers=headers, timeout=STREAM_TIMEOUT
            ) as answer:
                if not answer.is_success:
                    answer.read()
                self._checked(answer)
                yield from read_events(answer.iter_bytes())
        except httpx.InvalidURL as error:
            raise _no_address(path, error) from error
        except httpx.TransportError as error:
            raise unreachable(self.url, error) from error
        except json.JSONDecodeError as error:
            raise NotTheApi(
                f"an event came with data that is not JSON: {error.doc[:80]!r}"
            ) from error

    def _checked(self, answer: httpx.Response) -> httpx.Response:
        """`answer`, whose body has been read. Raises ClientError unless it is a success."""
        if answer.is_success:
            return answer
        if answer.is_redirect:
            where = answer.headers.get("Location", "")
            raise NotTheApi(
                f"{self.url} sends elsewhere ({where[:_LONGEST_SHOWN]}); give the address it names"
            )
        try:
            document = answer.json()
        except ValueError:
            document = None
        if not isinstance(document, dict):
            document = {"title": answer.reason_phrase, "detail": _shortened(answer.text)}
        raise Problem.of(answer, document)


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a list; `count` is the length of the whole list."""

    count: int
    results: list[Row]


class Tagged(NamedTuple):
    """A row and its ETag for `if_match`; None if the server sent no ETag."""

    row: Row
    etag: str | None


class Rows:
    """Operations on one collection, such as `client.plan_runs`.

    A row is a dict as the API returns it; `/api/docs/` lists the fields. `key` is the id in a row's
    address. `action` is the rest of an address as the API spells it, such as `what-if`. All methods
    raise ClientError.
    """

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name

    def page(self, **filters: Any) -> Page:
        """One page of the list; `limit` and `offset` select it."""
        return self._page(None, None, filters)

    def all(self, **filters: Any) -> Iterator[Row]:
        """The rows of all pages; `limit` bounds their number."""
        return self.rows(None, **filters)

    def get(self, key: object, *, fields: Sequence[str] | None = None) -> Row:
        row: Row = self._call("GET", key, query={"fields": fields})
        return row

    def get_tagged(self, key: object) -> Tagged:
        """A row with its ETag, which `update` and `delete` take as `if_match`."""
        answer = self._client.send("GET", self._path(key))
        return Tagged(self._client.decoded(answer), answer.headers.get("ETag"))

    def create(self, body: Row, *, idempotency_key: str | None = None) -> Row:
        row: Row = self.do(None, body=body, idempotency_key=idempotency_key)
        return row

    def update(self, key: object, body: Row, *, if_match: str | None = None) -> Row:
        """Change the fields in `body`. Raises Changed if the row's ETag is not `if_match`."""
        row: Row = self._call("PATCH", key, body=body, headers={"If-Match": if_match})
        return row

    def delete(self, key: object, *, if_match: str | None = None) -> None:
        """Delete a row. Raises Changed if its ETag is not `if_match`."""
        self._call("DELETE", key, headers={"If-Match": if_match})

    def read(self, action: str, key: object = None, **query: Any) -> Any:
        """GET below the collection, or below the row `key`."""
        return self._call("GET", key, action, query=query)

    def rows(self, action: str | None, key: object = None, **filters: Any) -> Iterator[Row]:
        """Like `read`, where the answer is a list with pages."""
        offset = int(filters.get("offset") or 0)
        left = filters.get("limit")
        while left is None or left > 0:
            limit = PAGE_ROWS if left is None else min(PAGE_ROWS, left)
            page = self._page(key, action, {**filters, "offset": offset, "limit": limit})
            yield from page.results
            offset += len(page.results)
            left = None if left is None else left - len(page.results)
            if not page.results or offset >= page.count:
                return

    def do(
        self,
        action: str | None,
        key: object = None,
        body: Any = None,
        *,
        idempotency_key: str | None = None,
    ) -> Any:
        """POST below the collection, or below the row `key`; the answer, None without any."""
        headers = {"Idempotency-Key": idempotency_key}
        return self._call("POST", key, action, body=body, headers=headers)

    def _page(self, key: object, action: str | None, query: Row) -> Page:
        answer = self._call("GET", key, action, query=query)
        return Page(answer["count"], answer["results"])

    def _call(self, method: str, key: object, action: str | None = None, **request: Any) -> Any:
        return self._client.call(method, self._path(key, action), **request)

    def _path(self, key: object = None, action: str | None = None) -> str:
        parts = [str(part) for part in (self._name, key, action) if part is not None]
        return "".join(f"/{quote(part, safe='')}" for part in parts) + "/"


def checked_url(url: str) -> str:
    """The server's address without a trailing slash. Raises BadAddress."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        httpx.URL(url).host.encode("idna")  # as it is looked up
    except (ValueError, httpx.InvalidURL):
        fits = False
    if not fits or parts.query or parts.fragment or parts.username is not None:
        raise BadAddress(
            f"{url!r} is no address of a server; give one like https://helix.example.org"
        )
    return url.rstrip("/").removesuffix(API)


def verification(url: str, ca: Path | None) -> ssl.SSLContext | bool:
    """How the server of `url` is verified. Plain http skips loading the certificates (20 ms)."""
    return False if urlsplit(url).scheme == "http" else trusting(ca)


def checked_key(key: str) -> str:
    """`key`. Raises BadAddress if it has characters that a header cannot carry."""
    if not key.isascii() or not key.isprintable() or " " in key:
        raise BadAddress("the API key has characters that no key has; copy it again (hlx_…)")
    return key


def _no_address(path: str, error: httpx.InvalidURL) -> BadAddress:
    return BadAddress(
        f"{_shortened(path)!r} and its parameters are no address ({error}); make them shorter, "
        "without control characters"
    )


def unreachable(url: str, error: httpx.TransportError) -> Unreachable:
    if why := why_untrusted(error):
        return Unreachable(
            f"the certificate of {url} is not trusted: {why}; give its issuer with --ca FILE"
        )
    why = str(error) or type(error).__name__
    return Unreachable(
        f"{url} does not answer ({why}); is it running, and is the address right?"
        f"{proxy_remedy(url)}"
    )


def trusts_environment(url: str) -> bool:
    """Whether proxies of the environment may lead to `url`. Raises BadAddress."""
    try:
        return may_use_proxy(url)
    except BadProxy as error:
        raise BadAddress(str(error)) from error


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_SHOWN else f"{line[:_LONGEST_SHOWN]}…"
