"""SharedBandwidths. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part
from helixweb.client.generated import schemas


class SharedBandwidthsFilters(TypedDict, total=False):
    """Query parameters of GET /shared-bandwidths/."""

    cluster: int
    limit: int
    name: str
    offset: int


class SharedBandwidths:
    """Operations under /api/v1/shared-bandwidths."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[SharedBandwidthsFilters]) -> Page[schemas.SharedBandwidth]:
        """What several links have together, beside the bandwidth of each."""
        answer = self._connection.call("GET", "/shared-bandwidths/", query=dict(filters))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[SharedBandwidthsFilters]) -> Iterator[schemas.SharedBandwidth]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/shared-bandwidths/", query=dict(filters))

    def create(self, body: schemas.SharedBandwidthRequest) -> schemas.SharedBandwidth:
        """What several links have together, beside the bandwidth of each."""
        return cast('schemas.SharedBandwidth', self._connection.call('POST', "/shared-bandwidths/", body=body))

    def get(self, id: int) -> schemas.SharedBandwidth:
        """What several links have together, beside the bandwidth of each."""
        return cast('schemas.SharedBandwidth', self._connection.call('GET', f"/shared-bandwidths/{path_part(id)}/"))

    def get_tagged(self, id: int) -> Tagged[schemas.SharedBandwidth]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/shared-bandwidths/{path_part(id)}/")

    def update(self, id: int, body: schemas.PatchedSharedBandwidthRequest | None = None, *, if_match: str | None = None) -> schemas.SharedBandwidth:
        """What several links have together, beside the bandwidth of each."""
        return cast('schemas.SharedBandwidth', self._connection.call('PATCH', f"/shared-bandwidths/{path_part(id)}/", body=body, headers={'If-Match': if_match}))

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """What several links have together, beside the bandwidth of each."""
        self._connection.call('DELETE', f"/shared-bandwidths/{path_part(id)}/", headers={'If-Match': if_match})
