"""SharedBandwidths. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part, with_commas
from helixweb.client.generated import schemas


class SharedBandwidthsFilters(TypedDict, total=False):
    """Query parameters of GET /shared-bandwidths/."""

    bandwidth_bytes_per_s: float
    bandwidth_bytes_per_s__gte: float
    bandwidth_bytes_per_s__lte: float
    cluster: int
    cluster__in: list[int]
    direction: Literal['egress', 'ingress']
    direction__in: list[str]
    fields: list[Literal['bandwidth_bytes_per_s', 'cluster', 'direction', 'id', 'members', 'name', 'scope']]
    limit: int
    name: str
    name__in: list[str]
    offset: int
    ordering: list[Literal['id', '-id', 'cluster', '-cluster', 'name', '-name', 'direction', '-direction', 'scope', '-scope', 'bandwidth_bytes_per_s', '-bandwidth_bytes_per_s']]
    q: str
    scope: Literal['nic', 'region']
    scope__in: list[str]


class SharedBandwidths:
    """Operations under /api/v1/shared-bandwidths."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[SharedBandwidthsFilters]) -> Page[schemas.SharedBandwidth]:
        """What several links have together, beside the bandwidth of each."""
        answer = self._connection.call("GET", "/shared-bandwidths/", query=with_commas(dict(filters), 'cluster__in', 'direction__in', 'fields', 'name__in', 'ordering', 'scope__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[SharedBandwidthsFilters]) -> Iterator[schemas.SharedBandwidth]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/shared-bandwidths/", query=with_commas(dict(filters), 'cluster__in', 'direction__in', 'fields', 'name__in', 'ordering', 'scope__in'))

    def create(self, body: schemas.SharedBandwidthRequest, *, idempotency_key: str | None = None) -> schemas.SharedBandwidth:
        """What several links have together, beside the bandwidth of each."""
        return cast('schemas.SharedBandwidth', self._connection.call('POST', "/shared-bandwidths/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def get(self, id: int, *, fields: list[Literal['bandwidth_bytes_per_s', 'cluster', 'direction', 'id', 'members', 'name', 'scope']] | None = None) -> schemas.SharedBandwidth:
        """What several links have together, beside the bandwidth of each."""
        return cast('schemas.SharedBandwidth', self._connection.call('GET', f"/shared-bandwidths/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def get_tagged(self, id: int) -> Tagged[schemas.SharedBandwidth]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/shared-bandwidths/{path_part(id)}/")

    def update(self, id: int, body: schemas.PatchedSharedBandwidthRequest | None = None, *, if_match: str | None = None) -> schemas.SharedBandwidth:
        """What several links have together, beside the bandwidth of each."""
        return cast('schemas.SharedBandwidth', self._connection.call('PATCH', f"/shared-bandwidths/{path_part(id)}/", body=body, headers={'If-Match': if_match}))

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """What several links have together, beside the bandwidth of each."""
        self._connection.call('DELETE', f"/shared-bandwidths/{path_part(id)}/", headers={'If-Match': if_match})

    def batch(self, body: schemas.SharedBandwidthBatchRequest | None = None, *, idempotency_key: str | None = None) -> schemas.SharedBandwidthBatchDone:
        """Delete, change and make many rows at once: all of it or, if any is refused, nothing."""
        return cast('schemas.SharedBandwidthBatchDone', self._connection.call('POST', "/shared-bandwidths/batch/", body=body, headers={'Idempotency-Key': idempotency_key}))
