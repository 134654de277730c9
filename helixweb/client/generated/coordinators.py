"""Coordinators. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part
from helixweb.client.generated import schemas


class CoordinatorsFilters(TypedDict, total=False):
    """Query parameters of GET /coordinators/."""

    cluster: int
    limit: int
    offset: int


class Coordinators:
    """Operations under /api/v1/coordinators."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[CoordinatorsFilters]) -> Page[schemas.Coordinator]:
        """Coordinators come by registering; a person can only remove one."""
        answer = self._connection.call("GET", "/coordinators/", query=dict(filters))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[CoordinatorsFilters]) -> Iterator[schemas.Coordinator]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/coordinators/", query=dict(filters))

    def get(self, id: int) -> schemas.Coordinator:
        """Coordinators come by registering; a person can only remove one."""
        return cast('schemas.Coordinator', self._connection.call('GET', f"/coordinators/{path_part(id)}/"))

    def get_tagged(self, id: int) -> Tagged[schemas.Coordinator]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/coordinators/{path_part(id)}/")

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """Coordinators come by registering; a person can only remove one."""
        self._connection.call('DELETE', f"/coordinators/{path_part(id)}/", headers={'If-Match': if_match})
