"""Groups. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part, with_commas
from helixweb.client.generated import schemas


class GroupsFilters(TypedDict, total=False):
    """Query parameters of GET /groups/."""

    fields: list[Literal['grants', 'id', 'members', 'name']]
    limit: int
    name: str
    name__in: list[str]
    offset: int
    ordering: list[Literal['id', '-id', 'name', '-name']]
    q: str


class Groups:
    """Operations under /api/v1/groups."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[GroupsFilters]) -> Page[schemas.Group]:
        """Whoever is in a group has its roles; PATCH says who is."""
        answer = self._connection.call("GET", "/groups/", query=with_commas(dict(filters), 'fields', 'name__in', 'ordering'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[GroupsFilters]) -> Iterator[schemas.Group]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/groups/", query=with_commas(dict(filters), 'fields', 'name__in', 'ordering'))

    def create(self, body: schemas.GroupRequest, *, idempotency_key: str | None = None) -> schemas.Group:
        """Whoever is in a group has its roles; PATCH says who is."""
        return cast('schemas.Group', self._connection.call('POST', "/groups/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def get(self, id: int, *, fields: list[Literal['grants', 'id', 'members', 'name']] | None = None) -> schemas.Group:
        """Whoever is in a group has its roles; PATCH says who is."""
        return cast('schemas.Group', self._connection.call('GET', f"/groups/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def get_tagged(self, id: int) -> Tagged[schemas.Group]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/groups/{path_part(id)}/")

    def update(self, id: int, body: schemas.PatchedGroupRequest | None = None, *, if_match: str | None = None) -> schemas.Group:
        """Exactly these are its members."""
        return cast('schemas.Group', self._connection.call('PATCH', f"/groups/{path_part(id)}/", body=body, headers={'If-Match': if_match}))

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """Whoever is in a group has its roles; PATCH says who is."""
        self._connection.call('DELETE', f"/groups/{path_part(id)}/", headers={'If-Match': if_match})
