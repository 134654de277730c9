"""Repairs. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, path_part
from helixweb.client.generated import schemas


class RepairsFilters(TypedDict, total=False):
    """Query parameters of GET /repairs/."""

    deployment: int
    limit: int
    offset: int
    state: Literal['computing', 'deployed', 'dismissed', 'failed', 'needless', 'offered', 'overtaken', 'waiting']


class Repairs:
    """Operations under /api/v1/repairs."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[RepairsFilters]) -> Page[schemas.Repair]:
        """A list, and each row with an ETag."""
        answer = self._connection.call("GET", "/repairs/", query=dict(filters))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[RepairsFilters]) -> Iterator[schemas.Repair]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/repairs/", query=dict(filters))

    def get(self, id: int) -> schemas.Repair:
        """A list, and each row with an ETag."""
        return cast('schemas.Repair', self._connection.call('GET', f"/repairs/{path_part(id)}/"))

    def deploy(self, id: int) -> schemas.Deployment:
        """Deploy the placement that is offered."""
        return cast('schemas.Deployment', self._connection.call('POST', f"/repairs/{path_part(id)}/deploy/"))

    def dismiss(self, id: int) -> schemas.Repair:
        """Leave the layers where they are."""
        return cast('schemas.Repair', self._connection.call('POST', f"/repairs/{path_part(id)}/dismiss/"))
