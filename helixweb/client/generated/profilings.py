"""Profilings. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part
from helixweb.client.generated import schemas


class ProfilingsFilters(TypedDict, total=False):
    """Query parameters of GET /profilings/."""

    limit: int
    model: int
    node: int
    node__cluster: int
    offset: int
    state: Literal['cancelled', 'done', 'failed', 'measuring', 'ordered', 'waiting']


class Profilings:
    """Operations under /api/v1/profilings."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[ProfilingsFilters]) -> Page[schemas.Profiling]:
        """Nodes measured beside what they serve; DELETE cancels one that has not ended."""
        answer = self._connection.call("GET", "/profilings/", query=dict(filters))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[ProfilingsFilters]) -> Iterator[schemas.Profiling]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/profilings/", query=dict(filters))

    def create(self, body: schemas.ProfilingRequest) -> schemas.Profiling:
        """Nodes measured beside what they serve; DELETE cancels one that has not ended."""
        return cast('schemas.Profiling', self._connection.call('POST', "/profilings/", body=body))

    def get(self, id: int) -> schemas.Profiling:
        """Nodes measured beside what they serve; DELETE cancels one that has not ended."""
        return cast('schemas.Profiling', self._connection.call('GET', f"/profilings/{path_part(id)}/"))

    def get_tagged(self, id: int) -> Tagged[schemas.Profiling]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/profilings/{path_part(id)}/")

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """Nodes measured beside what they serve; DELETE cancels one that has not ended."""
        self._connection.call('DELETE', f"/profilings/{path_part(id)}/", headers={'If-Match': if_match})
