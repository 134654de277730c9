"""Profilings. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part, with_commas
from helixweb.client.generated import schemas


class ProfilingsFilters(TypedDict, total=False):
    """Query parameters of GET /profilings/."""

    created_at: str
    created_at__gte: str
    created_at__lte: str
    fields: list[Literal['began_at', 'created_at', 'created_by', 'done', 'ended_at', 'id', 'left_s', 'like', 'message', 'model', 'node', 'state', 'version']]
    limit: int
    model: int
    model__in: list[int]
    node: int
    node__cluster: int
    node__cluster__in: list[int]
    node__in: list[int]
    offset: int
    ordering: list[Literal['id', '-id', 'node', '-node', 'model', '-model', 'state', '-state', 'done', '-done', 'message', '-message', 'version', '-version', 'like', '-like', 'created_by', '-created_by', 'created_at', '-created_at', 'began_at', '-began_at', 'ended_at', '-ended_at']]
    q: str
    state: Literal['cancelled', 'done', 'failed', 'measuring', 'ordered', 'waiting']
    state__in: list[str]


class Profilings:
    """Operations under /api/v1/profilings."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[ProfilingsFilters]) -> Page[schemas.Profiling]:
        """Nodes measured beside what they serve; DELETE cancels one that has not ended."""
        answer = self._connection.call("GET", "/profilings/", query=with_commas(dict(filters), 'fields', 'model__in', 'node__cluster__in', 'node__in', 'ordering', 'state__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[ProfilingsFilters]) -> Iterator[schemas.Profiling]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/profilings/", query=with_commas(dict(filters), 'fields', 'model__in', 'node__cluster__in', 'node__in', 'ordering', 'state__in'))

    def create(self, body: schemas.ProfilingRequest, *, idempotency_key: str | None = None) -> schemas.Profiling:
        """Nodes measured beside what they serve; DELETE cancels one that has not ended."""
        return cast('schemas.Profiling', self._connection.call('POST', "/profilings/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def get(self, id: int, *, fields: list[Literal['began_at', 'created_at', 'created_by', 'done', 'ended_at', 'id', 'left_s', 'like', 'message', 'model', 'node', 'state', 'version']] | None = None) -> schemas.Profiling:
        """Nodes measured beside what they serve; DELETE cancels one that has not ended."""
        return cast('schemas.Profiling', self._connection.call('GET', f"/profilings/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def get_tagged(self, id: int) -> Tagged[schemas.Profiling]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/profilings/{path_part(id)}/")

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """Nodes measured beside what they serve; DELETE cancels one that has not ended."""
        self._connection.call('DELETE', f"/profilings/{path_part(id)}/", headers={'If-Match': if_match})
