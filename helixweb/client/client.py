"""The client: `Client(url, key=…).nodes.all(cluster=1)`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from helixweb.client.connection import Connection, Row
from helixweb.client.events import follow

PAGE_ROWS = 500


class Client(Connection):
    """A connection whose attributes are collections: `plan_runs` is `/api/v1/plan-runs/`."""

    def __getattr__(self, name: str) -> "Rows":
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return Rows(self, name.replace("_", "-"))

    follow = follow


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some rows of a list; `count` is the length of the whole list."""

    count: int
    results: list[Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagged:
    """A row and its ETag for `if_match`; None if the server sent no ETag."""

    row: Row
    etag: str | None


class Rows:
    """Operations on one collection, such as `client.plan_runs`.

    A row is a dict as the API returns it; `/api/docs/` lists the fields. `key` is the id in a row's
    address. `action` is the rest of an address as the API spells it, such as `what-if`. All methods
    raise ClientError.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
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
        answer = self._connection.send("GET", self._path(key))
        return Tagged(row=self._connection.decoded(answer), etag=answer.headers.get("ETag"))

    def create(self, body: Row, *, idempotency_key: str | None = None) -> Row:
        row: Row = self.do(None, body=body, idempotency_key=idempotency_key)
        return row

    def update(self, key: object, body: Row, *, if_match: str | None = None) -> Row:
        """Change the fields in `body`. Raises Changed if the row's ETag is not `if_match`."""
        row: Row = self._call("PATCH", key, body=body, headers={"If-Match": if_match})
        return row

    def delete(self, key: object, *, if_match: str | None = None) -> None:
        """Raises Changed if the row's ETag is not `if_match`."""
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
        return Page(count=answer["count"], results=answer["results"])

    def _call(self, method: str, key: object, action: str | None = None, **request: Any) -> Any:
        return self._connection.call(method, self._path(key, action), **request)

    def _path(self, key: object = None, action: str | None = None) -> str:
        parts = [str(part) for part in (self._name, key, action) if part is not None]
        return "".join(f"/{quote(part, safe='')}" for part in parts) + "/"
