"""Operations on one collection of the REST API, such as `/api/v1/plan-runs/`."""

from collections.abc import Iterator, Sequence
from typing import Any

from helixweb.client.connection import Connection, Page, Row, Tagged, path_part


class Rows:
    """`client.plan_runs`. A row is a dict as the API returns it; `/api/docs/` lists the fields.

    `key` is the id in a row's address. `action` is the rest of an address as the API spells it,
    such as `what-if`. All methods raise ClientError.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._name = name

    def page(self, **filters: Any) -> Page:
        """One page of the list; `limit` and `offset` select it."""
        return self._connection.page(self._path(), query=filters)

    def all(self, **filters: Any) -> Iterator[Row]:
        """The rows of all pages; `limit` bounds their number."""
        return self._connection.pages(self._path(), query=filters)

    def get(self, key: object, *, fields: Sequence[str] | None = None) -> Row:
        row: Row = self._connection.call("GET", self._path(key), query={"fields": fields})
        return row

    def get_tagged(self, key: object) -> Tagged:
        """A row with its ETag, which `update` and `delete` take as `if_match`."""
        return self._connection.tagged(self._path(key))

    def create(self, body: Row, *, idempotency_key: str | None = None) -> Row:
        headers = {"Idempotency-Key": idempotency_key}
        row: Row = self._connection.call("POST", self._path(), body=body, headers=headers)
        return row

    def update(self, key: object, body: Row, *, if_match: str | None = None) -> Row:
        """Change the fields in `body`. Raises Changed if the row's ETag is not `if_match`."""
        headers = {"If-Match": if_match}
        row: Row = self._connection.call("PATCH", self._path(key), body=body, headers=headers)
        return row

    def delete(self, key: object, *, if_match: str | None = None) -> None:
        """Raises Changed if the row's ETag is not `if_match`."""
        self._connection.call("DELETE", self._path(key), headers={"If-Match": if_match})

    def read(self, action: str, key: object = None, **query: Any) -> Any:
        """GET below the collection, or below the row `key`."""
        return self._connection.call("GET", self._path(key, action), query=query)

    def rows(self, action: str, key: object = None, **filters: Any) -> Iterator[Row]:
        """Like `read`, where the answer is a list with pages."""
        return self._connection.pages(self._path(key, action), query=filters)

    def do(
        self,
        action: str,
        key: object = None,
        body: Any = None,
        *,
        idempotency_key: str | None = None,
    ) -> Any:
        """POST below the collection, or below the row `key`; the answer, None without any."""
        headers = {"Idempotency-Key": idempotency_key}
        return self._connection.call("POST", self._path(key, action), body=body, headers=headers)

    def _path(self, key: object = None, action: str | None = None) -> str:
        parts = [self._name, key, action]
        return "".join(f"/{path_part(part)}" for part in parts if part is not None) + "/"
