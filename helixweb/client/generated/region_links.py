"""RegionLinks. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part
from helixweb.client.generated import schemas


class RegionLinksFilters(TypedDict, total=False):
    """Query parameters of GET /region-links/."""

    cluster: int
    limit: int
    offset: int
    source: str
    target: str


class RegionLinks:
    """Operations under /api/v1/region-links."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[RegionLinksFilters]) -> Page[schemas.RegionLink]:
        """Lists, creates, changes and deletes through the services."""
        answer = self._connection.call("GET", "/region-links/", query=dict(filters))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[RegionLinksFilters]) -> Iterator[schemas.RegionLink]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/region-links/", query=dict(filters))

    def create(self, body: schemas.RegionLinkRequest) -> schemas.RegionLink:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.RegionLink', self._connection.call('POST', "/region-links/", body=body))

    def get(self, id: int) -> schemas.RegionLink:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.RegionLink', self._connection.call('GET', f"/region-links/{path_part(id)}/"))

    def get_tagged(self, id: int) -> Tagged[schemas.RegionLink]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/region-links/{path_part(id)}/")

    def update(self, id: int, body: schemas.PatchedRegionLinkRequest | None = None, *, if_match: str | None = None) -> schemas.RegionLink:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.RegionLink', self._connection.call('PATCH', f"/region-links/{path_part(id)}/", body=body, headers={'If-Match': if_match}))

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """Lists, creates, changes and deletes through the services."""
        self._connection.call('DELETE', f"/region-links/{path_part(id)}/", headers={'If-Match': if_match})
