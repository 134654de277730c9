"""Grants. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part, with_commas
from helixweb.client.generated import schemas


class GrantsFilters(TypedDict, total=False):
    """Query parameters of GET /grants/."""

    cluster: int
    cluster__in: list[int]
    fields: list[Literal['cluster', 'created_at', 'group', 'id', 'role', 'user']]
    group__name: str
    group__name__in: list[str]
    limit: int
    offset: int
    ordering: list[Literal['id', '-id', 'cluster', '-cluster', 'role', '-role', 'created_at', '-created_at']]
    q: str
    role: Literal['admin', 'operator', 'viewer']
    role__in: list[str]
    user__username: str
    user__username__in: list[str]


class Grants:
    """Operations under /api/v1/grants."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[GrantsFilters]) -> Page[schemas.Grant]:
        """Who has which role where: all of the site, or of the clusters that one administers."""
        answer = self._connection.call("GET", "/grants/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'group__name__in', 'ordering', 'role__in', 'user__username__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[GrantsFilters]) -> Iterator[schemas.Grant]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/grants/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'group__name__in', 'ordering', 'role__in', 'user__username__in'))

    def create(self, body: schemas.GrantRequest, *, idempotency_key: str | None = None) -> schemas.Grant:
        """Who has which role where: all of the site, or of the clusters that one administers."""
        return cast('schemas.Grant', self._connection.call('POST', "/grants/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def get(self, id: int, *, fields: list[Literal['cluster', 'created_at', 'group', 'id', 'role', 'user']] | None = None) -> schemas.Grant:
        """Who has which role where: all of the site, or of the clusters that one administers."""
        return cast('schemas.Grant', self._connection.call('GET', f"/grants/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def get_tagged(self, id: int) -> Tagged[schemas.Grant]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/grants/{path_part(id)}/")

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """Who has which role where: all of the site, or of the clusters that one administers."""
        self._connection.call('DELETE', f"/grants/{path_part(id)}/", headers={'If-Match': if_match})
