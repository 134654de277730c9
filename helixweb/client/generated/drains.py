"""Drains. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part, with_commas
from helixweb.client.generated import schemas


class DrainsFilters(TypedDict, total=False):
    """Query parameters of GET /drains/."""

    began_at: str
    began_at__gte: str
    began_at__lte: str
    drained_at: str
    drained_at__gte: str
    drained_at__lte: str
    fields: list[Literal['began_at', 'created_by', 'drained_at', 'id', 'let_go_at', 'needed', 'node', 'node_name', 'requests', 'state']]
    limit: int
    needed: bool
    node: int
    node__cluster: int
    node__cluster__in: list[int]
    node__in: list[int]
    offset: int
    ordering: list[Literal['id', '-id', 'node', '-node', 'requests', '-requests', 'needed', '-needed', 'began_at', '-began_at', 'let_go_at', '-let_go_at', 'drained_at', '-drained_at']]
    q: str


class Drains:
    """Operations under /api/v1/drains."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[DrainsFilters]) -> Page[schemas.Drain]:
        """Nodes that shall take no requests and hold nothing; DELETE takes one in again."""
        answer = self._connection.call("GET", "/drains/", query=with_commas(dict(filters), 'fields', 'node__cluster__in', 'node__in', 'ordering'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[DrainsFilters]) -> Iterator[schemas.Drain]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/drains/", query=with_commas(dict(filters), 'fields', 'node__cluster__in', 'node__in', 'ordering'))

    def create(self, body: schemas.DrainRequest, *, idempotency_key: str | None = None) -> schemas.Drain:
        """Nodes that shall take no requests and hold nothing; DELETE takes one in again."""
        return cast('schemas.Drain', self._connection.call('POST', "/drains/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def get(self, id: int, *, fields: list[Literal['began_at', 'created_by', 'drained_at', 'id', 'let_go_at', 'needed', 'node', 'node_name', 'requests', 'state']] | None = None) -> schemas.Drain:
        """Nodes that shall take no requests and hold nothing; DELETE takes one in again."""
        return cast('schemas.Drain', self._connection.call('GET', f"/drains/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def get_tagged(self, id: int) -> Tagged[schemas.Drain]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/drains/{path_part(id)}/")

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """Nodes that shall take no requests and hold nothing; DELETE takes one in again."""
        self._connection.call('DELETE', f"/drains/{path_part(id)}/", headers={'If-Match': if_match})
