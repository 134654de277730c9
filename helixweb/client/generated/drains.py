"""Drains. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part
from helixweb.client.generated import schemas


class DrainsFilters(TypedDict, total=False):
    """Query parameters of GET /drains/."""

    limit: int
    node: int
    node__cluster: int
    offset: int


class Drains:
    """Operations under /api/v1/drains."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[DrainsFilters]) -> Page[schemas.Drain]:
        """Nodes that shall take no requests and hold nothing; DELETE takes one in again."""
        answer = self._connection.call("GET", "/drains/", query=dict(filters))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[DrainsFilters]) -> Iterator[schemas.Drain]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/drains/", query=dict(filters))

    def create(self, body: schemas.DrainRequest) -> schemas.Drain:
        """Nodes that shall take no requests and hold nothing; DELETE takes one in again."""
        return cast('schemas.Drain', self._connection.call('POST', "/drains/", body=body))

    def get(self, id: int) -> schemas.Drain:
        """Nodes that shall take no requests and hold nothing; DELETE takes one in again."""
        return cast('schemas.Drain', self._connection.call('GET', f"/drains/{path_part(id)}/"))

    def get_tagged(self, id: int) -> Tagged[schemas.Drain]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/drains/{path_part(id)}/")

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """Nodes that shall take no requests and hold nothing; DELETE takes one in again."""
        self._connection.call('DELETE', f"/drains/{path_part(id)}/", headers={'If-Match': if_match})
