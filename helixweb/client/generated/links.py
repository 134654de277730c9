"""Links. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part, with_commas
from helixweb.client.generated import schemas


class LinksFilters(TypedDict, total=False):
    """Query parameters of GET /links/."""

    bandwidth_bytes_per_s: float
    bandwidth_bytes_per_s__gte: float
    bandwidth_bytes_per_s__lte: float
    cluster: int
    cluster__in: list[int]
    fields: list[Literal['bandwidth_bytes_per_s', 'cluster', 'id', 'latency_s', 'origin', 'recorded_at', 'source', 'target']]
    latency_s: float
    latency_s__gte: float
    latency_s__lte: float
    limit: int
    offset: int
    ordering: list[Literal['id', '-id', 'cluster', '-cluster', 'source', '-source', 'target', '-target', 'bandwidth_bytes_per_s', '-bandwidth_bytes_per_s', 'latency_s', '-latency_s', 'origin', '-origin', 'recorded_at', '-recorded_at']]
    origin: Literal['entered', 'estimated', 'imported', 'measured', 'refined']
    origin__in: list[str]
    q: str
    recorded_at: str
    recorded_at__gte: str
    recorded_at__lte: str
    source: str
    source__in: list[str]
    target: str
    target__in: list[str]


class Links:
    """Operations under /api/v1/links."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[LinksFilters]) -> Page[schemas.Link]:
        """Lists, creates, changes and deletes through the services."""
        answer = self._connection.call("GET", "/links/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'ordering', 'origin__in', 'source__in', 'target__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[LinksFilters]) -> Iterator[schemas.Link]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/links/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'ordering', 'origin__in', 'source__in', 'target__in'))

    def create(self, body: schemas.LinkRequest, *, idempotency_key: str | None = None) -> schemas.Link:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.Link', self._connection.call('POST', "/links/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def get(self, id: int, *, fields: list[Literal['bandwidth_bytes_per_s', 'cluster', 'id', 'latency_s', 'origin', 'recorded_at', 'source', 'target']] | None = None) -> schemas.Link:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.Link', self._connection.call('GET', f"/links/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def get_tagged(self, id: int) -> Tagged[schemas.Link]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/links/{path_part(id)}/")

    def update(self, id: int, body: schemas.PatchedLinkRequest | None = None, *, if_match: str | None = None) -> schemas.Link:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.Link', self._connection.call('PATCH', f"/links/{path_part(id)}/", body=body, headers={'If-Match': if_match}))

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """Lists, creates, changes and deletes through the services."""
        self._connection.call('DELETE', f"/links/{path_part(id)}/", headers={'If-Match': if_match})

    def batch(self, body: schemas.LinkBatchRequest | None = None, *, idempotency_key: str | None = None) -> schemas.LinkBatchDone:
        """Delete, change and make many rows at once: all of it or, if any is refused, nothing."""
        return cast('schemas.LinkBatchDone', self._connection.call('POST', "/links/batch/", body=body, headers={'Idempotency-Key': idempotency_key}))
