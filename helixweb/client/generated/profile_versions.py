"""ProfileVersions. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part, with_commas
from helixweb.client.generated import schemas


class ProfileVersionsFilters(TypedDict, total=False):
    """Query parameters of GET /profile-versions/."""

    fields: list[Literal['document', 'evidence', 'id', 'node', 'number', 'origin', 'profile', 'recorded_at']]
    limit: int
    node: str
    node__in: list[str]
    number: int
    number__gte: int
    number__lte: int
    offset: int
    ordering: list[Literal['id', '-id', 'profile', '-profile', 'number', '-number', 'origin', '-origin', 'node', '-node', 'recorded_at', '-recorded_at']]
    origin: Literal['entered', 'estimated', 'imported', 'measured', 'refined']
    origin__in: list[str]
    profile: int
    profile__cluster: int
    profile__cluster__in: list[int]
    profile__in: list[int]
    q: str
    recorded_at: str
    recorded_at__gte: str
    recorded_at__lte: str


class ProfileVersions:
    """Operations under /api/v1/profile-versions."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[ProfileVersionsFilters]) -> Page[schemas.ProfileVersion]:
        """What profiles were found to be, the newest first."""
        answer = self._connection.call("GET", "/profile-versions/", query=with_commas(dict(filters), 'fields', 'node__in', 'ordering', 'origin__in', 'profile__cluster__in', 'profile__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[ProfileVersionsFilters]) -> Iterator[schemas.ProfileVersion]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/profile-versions/", query=with_commas(dict(filters), 'fields', 'node__in', 'ordering', 'origin__in', 'profile__cluster__in', 'profile__in'))

    def get(self, id: int, *, fields: list[Literal['document', 'evidence', 'id', 'node', 'number', 'origin', 'profile', 'recorded_at']] | None = None) -> schemas.ProfileVersion:
        """What profiles were found to be, the newest first."""
        return cast('schemas.ProfileVersion', self._connection.call('GET', f"/profile-versions/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def get_tagged(self, id: int) -> Tagged[schemas.ProfileVersion]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/profile-versions/{path_part(id)}/")

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """What profiles were found to be, the newest first."""
        self._connection.call('DELETE', f"/profile-versions/{path_part(id)}/", headers={'If-Match': if_match})

    def use(self, id: int, *, idempotency_key: str | None = None) -> schemas.Profile:
        """Have plans use this version from now on."""
        return cast('schemas.Profile', self._connection.call('POST', f"/profile-versions/{path_part(id)}/use/", headers={'Idempotency-Key': idempotency_key}))
