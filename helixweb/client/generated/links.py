"""Links. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part
from helixweb.client.generated import schemas


class LinksFilters(TypedDict, total=False):
    """Query parameters of GET /links/."""

    cluster: int
    limit: int
    offset: int
    source: str
    target: str


class Links:
    """Operations under /api/v1/links."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[LinksFilters]) -> Page[schemas.Link]:
        """Lists, creates, changes and deletes through the services."""
        answer = self._connection.call("GET", "/links/", query=dict(filters))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[LinksFilters]) -> Iterator[schemas.Link]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/links/", query=dict(filters))

    def create(self, body: schemas.LinkRequest) -> schemas.Link:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.Link', self._connection.call('POST', "/links/", body=body))

    def get(self, id: int) -> schemas.Link:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.Link', self._connection.call('GET', f"/links/{path_part(id)}/"))

    def get_tagged(self, id: int) -> Tagged[schemas.Link]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/links/{path_part(id)}/")

    def update(self, id: int, body: schemas.PatchedLinkRequest | None = None, *, if_match: str | None = None) -> schemas.Link:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.Link', self._connection.call('PATCH', f"/links/{path_part(id)}/", body=body, headers={'If-Match': if_match}))

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """Lists, creates, changes and deletes through the services."""
        self._connection.call('DELETE', f"/links/{path_part(id)}/", headers={'If-Match': if_match})
