"""RegionLinks. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part, with_commas
from helixweb.client.generated import schemas


class RegionLinksFilters(TypedDict, total=False):
    """Query parameters of GET /region-links/."""

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


class RegionLinks:
    """Operations under /api/v1/region-links."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[RegionLinksFilters]) -> Page[schemas.RegionLink]:
        """Lists, creates, changes and deletes through the services."""
        answer = self._connection.call("GET", "/region-links/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'ordering', 'origin__in', 'source__in', 'target__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[RegionLinksFilters]) -> Iterator[schemas.RegionLink]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/region-links/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'ordering', 'origin__in', 'source__in', 'target__in'))

    def create(self, body: schemas.RegionLinkRequest, *, idempotency_key: str | None = None) -> schemas.RegionLink:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.RegionLink', self._connection.call('POST', "/region-links/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def get(self, id: int, *, fields: list[Literal['bandwidth_bytes_per_s', 'cluster', 'id', 'latency_s', 'origin', 'recorded_at', 'source', 'target']] | None = None) -> schemas.RegionLink:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.RegionLink', self._connection.call('GET', f"/region-links/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def get_tagged(self, id: int) -> Tagged[schemas.RegionLink]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/region-links/{path_part(id)}/")

    def update(self, id: int, body: schemas.PatchedRegionLinkRequest | None = None, *, if_match: str | None = None) -> schemas.RegionLink:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.RegionLink', self._connection.call('PATCH', f"/region-links/{path_part(id)}/", body=body, headers={'If-Match': if_match}))

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """Lists, creates, changes and deletes through the services."""
        self._connection.call('DELETE', f"/region-links/{path_part(id)}/", headers={'If-Match': if_match})

    def batch(self, body: schemas.RegionLinkBatchRequest | None = None, *, idempotency_key: str | None = None) -> schemas.RegionLinkBatchDone:
        """Delete, change and make many rows at once: all of it or, if any is refused, nothing."""
        return cast('schemas.RegionLinkBatchDone', self._connection.call('POST', "/region-links/batch/", body=body, headers={'Idempotency-Key': idempotency_key}))
