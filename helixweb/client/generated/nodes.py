"""Nodes. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part, with_commas
from helixweb.client.generated import schemas


class NodesFilters(TypedDict, total=False):
    """Query parameters of GET /nodes/."""

    cluster: int
    cluster__in: list[int]
    fields: list[Literal['cluster', 'data_endpoint', 'hardware', 'id', 'joined_at', 'last_seen_at', 'name', 'price_per_hour', 'profile_name', 'region', 'state', 'tags', 'uuid', 'version']]
    last_seen_at: str
    last_seen_at__gte: str
    last_seen_at__lte: str
    limit: int
    name: str
    name__in: list[str]
    offset: int
    ordering: list[Literal['id', '-id', 'cluster', '-cluster', 'name', '-name', 'region', '-region', 'profile_name', '-profile_name', 'price_per_hour', '-price_per_hour', 'uuid', '-uuid', 'data_endpoint', '-data_endpoint', 'version', '-version', 'joined_at', '-joined_at', 'last_seen_at', '-last_seen_at']]
    profile_name: str
    profile_name__in: list[str]
    q: str
    region: str
    region__in: list[str]
    uuid: str


class Nodes:
    """Operations under /api/v1/nodes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[NodesFilters]) -> Page[schemas.Node]:
        """A list of processes, in which one becomes lost by its silence alone."""
        answer = self._connection.call("GET", "/nodes/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'name__in', 'ordering', 'profile_name__in', 'region__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[NodesFilters]) -> Iterator[schemas.Node]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/nodes/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'name__in', 'ordering', 'profile_name__in', 'region__in'))

    def create(self, body: schemas.NodeRequest, *, idempotency_key: str | None = None) -> schemas.Node:
        """A list of processes, in which one becomes lost by its silence alone."""
        return cast('schemas.Node', self._connection.call('POST', "/nodes/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def get(self, id: int, *, fields: list[Literal['cluster', 'data_endpoint', 'hardware', 'id', 'joined_at', 'last_seen_at', 'name', 'price_per_hour', 'profile_name', 'region', 'state', 'tags', 'uuid', 'version']] | None = None) -> schemas.Node:
        """A list of processes, in which one becomes lost by its silence alone."""
        return cast('schemas.Node', self._connection.call('GET', f"/nodes/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def get_tagged(self, id: int) -> Tagged[schemas.Node]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/nodes/{path_part(id)}/")

    def update(self, id: int, body: schemas.PatchedNodeRequest | None = None, *, if_match: str | None = None) -> schemas.Node:
        """A list of processes, in which one becomes lost by its silence alone."""
        return cast('schemas.Node', self._connection.call('PATCH', f"/nodes/{path_part(id)}/", body=body, headers={'If-Match': if_match}))

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """A list of processes, in which one becomes lost by its silence alone."""
        self._connection.call('DELETE', f"/nodes/{path_part(id)}/", headers={'If-Match': if_match})

    def log(self, id: int, *, level: Literal['debug', 'info', 'warning', 'error'] | None = None, limit: int | None = None) -> list[schemas.NodeLogLine]:
        """The last lines that a node's agent and stage logged, the newest last."""
        return cast('list[schemas.NodeLogLine]', self._connection.call('GET', f"/nodes/{path_part(id)}/log", query={'level': level, 'limit': limit}))

    def revoke_credential(self, id: int, *, idempotency_key: str | None = None) -> None:
        """Shut the agent out; it can only join anew, with a fresh token."""
        self._connection.call('POST', f"/nodes/{path_part(id)}/revoke-credential/", headers={'Idempotency-Key': idempotency_key})

    def batch(self, body: schemas.NodeBatchRequest | None = None, *, idempotency_key: str | None = None) -> schemas.NodeBatchDone:
        """Delete, change and make many rows at once: all of it or, if any is refused, nothing."""
        return cast('schemas.NodeBatchDone', self._connection.call('POST', "/nodes/batch/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def bulk(self, body: schemas.BulkRequest, *, idempotency_key: str | None = None) -> schemas.Changed:
        """Change region, profile or tags of many nodes at once, all or none."""
        return cast('schemas.Changed', self._connection.call('POST', "/nodes/bulk/", body=body, headers={'Idempotency-Key': idempotency_key}))
