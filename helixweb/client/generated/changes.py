"""Changes. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, path_part
from helixweb.client.generated import schemas


class ChangesFilters(TypedDict, total=False):
    """Query parameters of GET /changes/."""

    action: Literal['added', 'changed', 'noted', 'removed']
    actor: str
    batch: str
    cluster: int
    kind: str
    limit: int
    offset: int
    row_id: int


class Changes:
    """Operations under /api/v1/changes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[ChangesFilters]) -> Page[schemas.Change]:
        """Who did what to which row, the newest first."""
        answer = self._connection.call("GET", "/changes/", query=dict(filters))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[ChangesFilters]) -> Iterator[schemas.Change]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/changes/", query=dict(filters))

    def get(self, id: int) -> schemas.Change:
        """Who did what to which row, the newest first."""
        return cast('schemas.Change', self._connection.call('GET', f"/changes/{path_part(id)}/"))
