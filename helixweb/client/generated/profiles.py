"""Profiles. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part, with_commas
from helixweb.client.generated import schemas


class ProfilesFilters(TypedDict, total=False):
    """Query parameters of GET /profiles/."""

    cluster: int
    cluster__in: list[int]
    fields: list[Literal['batch_limits', 'cluster', 'gpu', 'id', 'kv_capacity_token_layers', 'layer_times', 'max_layers', 'memory', 'model', 'name', 'origin', 'price_per_hour', 'recorded_at', 'tokens_per_s', 'vram_bytes']]
    gpu: str
    gpu__in: list[str]
    limit: int
    model: int
    model__in: list[int]
    name: str
    name__in: list[str]
    offset: int
    ordering: list[Literal['id', '-id', 'cluster', '-cluster', 'model', '-model', 'name', '-name', 'gpu', '-gpu', 'vram_bytes', '-vram_bytes', 'max_layers', '-max_layers', 'price_per_hour', '-price_per_hour', 'origin', '-origin', 'recorded_at', '-recorded_at']]
    origin: Literal['entered', 'estimated', 'imported', 'measured', 'refined']
    origin__in: list[str]
    q: str
    recorded_at: str
    recorded_at__gte: str
    recorded_at__lte: str
    vram_bytes: float
    vram_bytes__gte: float
    vram_bytes__lte: float


class Profiles:
    """Operations under /api/v1/profiles."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[ProfilesFilters]) -> Page[schemas.Profile]:
        """Lists, creates, changes and deletes through the services."""
        answer = self._connection.call("GET", "/profiles/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'gpu__in', 'model__in', 'name__in', 'ordering', 'origin__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[ProfilesFilters]) -> Iterator[schemas.Profile]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/profiles/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'gpu__in', 'model__in', 'name__in', 'ordering', 'origin__in'))

    def create(self, body: schemas.ProfileRequest, *, idempotency_key: str | None = None) -> schemas.Profile:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.Profile', self._connection.call('POST', "/profiles/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def get(self, id: int, *, fields: list[Literal['batch_limits', 'cluster', 'gpu', 'id', 'kv_capacity_token_layers', 'layer_times', 'max_layers', 'memory', 'model', 'name', 'origin', 'price_per_hour', 'recorded_at', 'tokens_per_s', 'vram_bytes']] | None = None) -> schemas.Profile:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.Profile', self._connection.call('GET', f"/profiles/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def get_tagged(self, id: int) -> Tagged[schemas.Profile]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/profiles/{path_part(id)}/")

    def update(self, id: int, body: schemas.PatchedProfileRequest | None = None, *, if_match: str | None = None) -> schemas.Profile:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.Profile', self._connection.call('PATCH', f"/profiles/{path_part(id)}/", body=body, headers={'If-Match': if_match}))

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """Lists, creates, changes and deletes through the services."""
        self._connection.call('DELETE', f"/profiles/{path_part(id)}/", headers={'If-Match': if_match})

    def export(self, id: int) -> dict[str, Any]:
        """The profile as a `helixweb.profile/1` document."""
        return cast('dict[str, Any]', self._connection.call('GET', f"/profiles/{path_part(id)}/export/"))

    def batch(self, body: schemas.ProfileBatchRequest | None = None, *, idempotency_key: str | None = None) -> schemas.ProfileBatchDone:
        """Delete, change and make many rows at once: all of it or, if any is refused, nothing."""
        return cast('schemas.ProfileBatchDone', self._connection.call('POST', "/profiles/batch/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def estimate(self, body: schemas.EstimateRequest, *, idempotency_key: str | None = None) -> schemas.Profile:
        """A profile from the data sheet of a GPU that nobody has measured; marked so."""
        return cast('schemas.Profile', self._connection.call('POST', "/profiles/estimate/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def import_(self, body: schemas.ProfileImportRequest, *, idempotency_key: str | None = None) -> schemas.ProfileVersion:
        """Store such a document as a profile, or as the next version of the one of that name."""
        return cast('schemas.ProfileVersion', self._connection.call('POST', "/profiles/import/", body=body, headers={'Idempotency-Key': idempotency_key}))
