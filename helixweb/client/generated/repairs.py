"""Repairs. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, path_part, with_commas
from helixweb.client.generated import schemas


class RepairsFilters(TypedDict, total=False):
    """Query parameters of GET /repairs/."""

    deployment: int
    deployment__cluster: int
    deployment__cluster__in: list[int]
    deployment__in: list[int]
    fields: list[Literal['added', 'deployment', 'flow_tokens_per_s', 'id', 'lost', 'moved_bytes', 'noticed_at', 'run', 'state', 'unmoved_tokens_per_s', 'why']]
    limit: int
    noticed_at: str
    noticed_at__gte: str
    noticed_at__lte: str
    offset: int
    ordering: list[Literal['id', '-id', 'deployment', '-deployment', 'state', '-state', 'run', '-run', 'unmoved_tokens_per_s', '-unmoved_tokens_per_s', 'flow_tokens_per_s', '-flow_tokens_per_s', 'moved_bytes', '-moved_bytes', 'why', '-why', 'noticed_at', '-noticed_at']]
    q: str
    state: Literal['computing', 'deployed', 'dismissed', 'failed', 'needless', 'offered', 'overtaken', 'waiting']
    state__in: list[str]


class Repairs:
    """Operations under /api/v1/repairs."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[RepairsFilters]) -> Page[schemas.Repair]:
        """A list and each row, with ETags."""
        answer = self._connection.call("GET", "/repairs/", query=with_commas(dict(filters), 'deployment__cluster__in', 'deployment__in', 'fields', 'ordering', 'state__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[RepairsFilters]) -> Iterator[schemas.Repair]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/repairs/", query=with_commas(dict(filters), 'deployment__cluster__in', 'deployment__in', 'fields', 'ordering', 'state__in'))

    def get(self, id: int, *, fields: list[Literal['added', 'deployment', 'flow_tokens_per_s', 'id', 'lost', 'moved_bytes', 'noticed_at', 'run', 'state', 'unmoved_tokens_per_s', 'why']] | None = None) -> schemas.Repair:
        """A list and each row, with ETags."""
        return cast('schemas.Repair', self._connection.call('GET', f"/repairs/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def deploy(self, id: int, *, idempotency_key: str | None = None) -> schemas.Deployment:
        """Deploy the placement that is offered."""
        return cast('schemas.Deployment', self._connection.call('POST', f"/repairs/{path_part(id)}/deploy/", headers={'Idempotency-Key': idempotency_key}))

    def dismiss(self, id: int, *, idempotency_key: str | None = None) -> schemas.Repair:
        """Leave the layers where they are."""
        return cast('schemas.Repair', self._connection.call('POST', f"/repairs/{path_part(id)}/dismiss/", headers={'Idempotency-Key': idempotency_key}))
