"""Nodes. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part
from helixweb.client.generated import schemas


class NodesFilters(TypedDict, total=False):
    """Query parameters of GET /nodes/."""

    cluster: int
    limit: int
    name: str
    offset: int
    profile_name: str
    region: str


class Nodes:
    """Operations under /api/v1/nodes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[NodesFilters]) -> Page[schemas.Node]:
        """Lists, creates, changes and deletes through the services."""
        answer = self._connection.call("GET", "/nodes/", query=dict(filters))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[NodesFilters]) -> Iterator[schemas.Node]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/nodes/", query=dict(filters))

    def create(self, body: schemas.NodeRequest) -> schemas.Node:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.Node', self._connection.call('POST', "/nodes/", body=body))

    def get(self, id: int) -> schemas.Node:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.Node', self._connection.call('GET', f"/nodes/{path_part(id)}/"))

    def get_tagged(self, id: int) -> Tagged[schemas.Node]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/nodes/{path_part(id)}/")

    def update(self, id: int, body: schemas.PatchedNodeRequest | None = None, *, if_match: str | None = None) -> schemas.Node:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.Node', self._connection.call('PATCH', f"/nodes/{path_part(id)}/", body=body, headers={'If-Match': if_match}))

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """Lists, creates, changes and deletes through the services."""
        self._connection.call('DELETE', f"/nodes/{path_part(id)}/", headers={'If-Match': if_match})

    def log(self, id: int, *, level: Literal['debug', 'info', 'warning', 'error'] | None = None, limit: int | None = None) -> list[schemas.NodeLogLine]:
        """The last lines that a node's agent and stage logged, the newest last."""
        return cast('list[schemas.NodeLogLine]', self._connection.call('GET', f"/nodes/{path_part(id)}/log", query={'level': level, 'limit': limit}))

    def bulk(self, body: schemas.BulkRequest) -> schemas.Changed:
        """Change region, profile or tags of many nodes at once, all or none."""
        return cast('schemas.Changed', self._connection.call('POST', "/nodes/bulk/", body=body))
