"""ModelMixes. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, path_part, with_commas
from helixweb.client.generated import schemas


class ModelMixesFilters(TypedDict, total=False):
    """Query parameters of GET /model-mixes/."""

    cluster: int
    cluster__in: list[int]
    created_at: str
    created_at__gte: str
    created_at__lte: str
    fields: list[Literal['attempt', 'cancel_requested', 'cluster', 'created_at', 'created_by', 'error', 'finished_at', 'id', 'level_bound_tokens_per_s', 'level_tokens_per_s', 'models', 'options', 'runs', 'started_at', 'status']]
    limit: int
    offset: int
    ordering: list[Literal['id', '-id', 'cluster', '-cluster', 'status', '-status', 'attempt', '-attempt', 'cancel_requested', '-cancel_requested', 'error', '-error', 'level_tokens_per_s', '-level_tokens_per_s', 'level_bound_tokens_per_s', '-level_bound_tokens_per_s', 'created_at', '-created_at', 'started_at', '-started_at', 'finished_at', '-finished_at']]
    q: str
    status: Literal['cancelled', 'failed', 'queued', 'running', 'succeeded']
    status__in: list[str]


class ModelMixes:
    """Operations under /api/v1/model-mixes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[ModelMixesFilters]) -> Page[schemas.ModelMix]:
        """A list and each row, with ETags."""
        answer = self._connection.call("GET", "/model-mixes/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'ordering', 'status__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[ModelMixesFilters]) -> Iterator[schemas.ModelMix]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/model-mixes/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'ordering', 'status__in'))

    def create(self, body: schemas.ModelMixRequestRequest, *, idempotency_key: str | None = None) -> schemas.ModelMix:
        """Queue a plan for each of several models, no two of which use a node."""
        return cast('schemas.ModelMix', self._connection.call('POST', "/model-mixes/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def get(self, id: int, *, fields: list[Literal['attempt', 'cancel_requested', 'cluster', 'created_at', 'created_by', 'error', 'finished_at', 'id', 'level_bound_tokens_per_s', 'level_tokens_per_s', 'models', 'options', 'runs', 'started_at', 'status']] | None = None) -> schemas.ModelMix:
        """A list and each row, with ETags."""
        return cast('schemas.ModelMix', self._connection.call('GET', f"/model-mixes/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def cancel(self, id: int, *, idempotency_key: str | None = None) -> schemas.ModelMix:
        """End the search; what it has is kept."""
        return cast('schemas.ModelMix', self._connection.call('POST', f"/model-mixes/{path_part(id)}/cancel/", headers={'Idempotency-Key': idempotency_key}))
