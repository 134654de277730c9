"""Changes. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, path_part, with_commas
from helixweb.client.generated import schemas


class ChangesFilters(TypedDict, total=False):
    """Query parameters of GET /changes/."""

    action: Literal['added', 'changed', 'noted', 'refused', 'removed']
    action__in: list[str]
    actor: str
    actor__in: list[str]
    actor_kind: Literal['command', 'key', 'nobody', 'person', 'process', 'site']
    actor_kind__in: list[str]
    address: str
    address__in: list[str]
    api_key: str
    api_key__in: list[str]
    at: str
    at__gte: str
    at__lte: str
    batch: str
    cluster: int
    cluster__in: list[int]
    fields: list[Literal['action', 'actor', 'actor_kind', 'address', 'after', 'api_key', 'at', 'batch', 'before', 'cluster', 'cluster_name', 'comment', 'id', 'kind', 'name', 'request_id', 'row_id', 'text']]
    kind: str
    kind__in: list[str]
    limit: int
    name: str
    name__in: list[str]
    offset: int
    ordering: list[Literal['id', '-id', 'cluster', '-cluster', 'cluster_name', '-cluster_name', 'kind', '-kind', 'row_id', '-row_id', 'name', '-name', 'action', '-action', 'text', '-text', 'actor', '-actor', 'actor_kind', '-actor_kind', 'request_id', '-request_id', 'comment', '-comment', 'batch', '-batch', 'at', '-at']]
    q: str
    request_id: str
    request_id__in: list[str]
    row_id: int
    row_id__gte: int
    row_id__lte: int


class Changes:
    """Operations under /api/v1/changes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[ChangesFilters]) -> Page[schemas.Change]:
        """Who did what to which row, the newest first."""
        answer = self._connection.call("GET", "/changes/", query=with_commas(dict(filters), 'action__in', 'actor__in', 'actor_kind__in', 'address__in', 'api_key__in', 'cluster__in', 'fields', 'kind__in', 'name__in', 'ordering', 'request_id__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[ChangesFilters]) -> Iterator[schemas.Change]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/changes/", query=with_commas(dict(filters), 'action__in', 'actor__in', 'actor_kind__in', 'address__in', 'api_key__in', 'cluster__in', 'fields', 'kind__in', 'name__in', 'ordering', 'request_id__in'))

    def get(self, id: int, *, fields: list[Literal['action', 'actor', 'actor_kind', 'address', 'after', 'api_key', 'at', 'batch', 'before', 'cluster', 'cluster_name', 'comment', 'id', 'kind', 'name', 'request_id', 'row_id', 'text']] | None = None) -> schemas.Change:
        """Who did what to which row, the newest first."""
        return cast('schemas.Change', self._connection.call('GET', f"/changes/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))
