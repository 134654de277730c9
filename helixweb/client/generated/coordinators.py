"""Coordinators. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part, with_commas
from helixweb.client.generated import schemas


class CoordinatorsFilters(TypedDict, total=False):
    """Query parameters of GET /coordinators/."""

    cluster: int
    cluster__in: list[int]
    fields: list[Literal['cluster', 'data_endpoint', 'http_url', 'id', 'joined_at', 'last_seen_at', 'name', 'state', 'uuid', 'version']]
    last_seen_at: str
    last_seen_at__gte: str
    last_seen_at__lte: str
    limit: int
    name: str
    name__in: list[str]
    offset: int
    ordering: list[Literal['id', '-id', 'cluster', '-cluster', 'name', '-name', 'uuid', '-uuid', 'http_url', '-http_url', 'data_endpoint', '-data_endpoint', 'version', '-version', 'joined_at', '-joined_at', 'last_seen_at', '-last_seen_at']]
    q: str
    uuid: str


class Coordinators:
    """Operations under /api/v1/coordinators."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[CoordinatorsFilters]) -> Page[schemas.Coordinator]:
        """Coordinators come by registering; a person can only remove one."""
        answer = self._connection.call("GET", "/coordinators/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'name__in', 'ordering'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[CoordinatorsFilters]) -> Iterator[schemas.Coordinator]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/coordinators/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'name__in', 'ordering'))

    def get(self, id: int, *, fields: list[Literal['cluster', 'data_endpoint', 'http_url', 'id', 'joined_at', 'last_seen_at', 'name', 'state', 'uuid', 'version']] | None = None) -> schemas.Coordinator:
        """Coordinators come by registering; a person can only remove one."""
        return cast('schemas.Coordinator', self._connection.call('GET', f"/coordinators/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def get_tagged(self, id: int) -> Tagged[schemas.Coordinator]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/coordinators/{path_part(id)}/")

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """Coordinators come by registering; a person can only remove one."""
        self._connection.call('DELETE', f"/coordinators/{path_part(id)}/", headers={'If-Match': if_match})

    def revoke_credential(self, id: int, *, idempotency_key: str | None = None) -> None:
        """Shut the coordinator out; it can only join anew, with a fresh token."""
        self._connection.call('POST', f"/coordinators/{path_part(id)}/revoke-credential/", headers={'Idempotency-Key': idempotency_key})
