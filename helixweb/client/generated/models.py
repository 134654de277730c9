"""Models. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part, with_commas
from helixweb.client.generated import schemas


class ModelsFilters(TypedDict, total=False):
    """Query parameters of GET /models/."""

    checkpoint: str
    checkpoint__in: list[str]
    created_at: str
    created_at__gte: str
    created_at__lte: str
    fields: list[Literal['activation_bytes_per_token', 'architecture', 'bytes_per_layer', 'checkpoint', 'created_at', 'dtype', 'embedding_bytes', 'engine', 'head_bytes', 'head_dim', 'id', 'max_context_tokens', 'name', 'num_heads', 'num_kv_heads', 'num_layers', 'token_bytes', 'vllm_flags', 'why_not_split']]
    limit: int
    name: str
    name__in: list[str]
    num_layers: int
    num_layers__gte: int
    num_layers__lte: int
    offset: int
    ordering: list[Literal['id', '-id', 'name', '-name', 'num_layers', '-num_layers', 'activation_bytes_per_token', '-activation_bytes_per_token', 'token_bytes', '-token_bytes', 'bytes_per_layer', '-bytes_per_layer', 'checkpoint', '-checkpoint', 'max_context_tokens', '-max_context_tokens', 'num_heads', '-num_heads', 'num_kv_heads', '-num_kv_heads', 'head_dim', '-head_dim', 'embedding_bytes', '-embedding_bytes', 'head_bytes', '-head_bytes', 'architecture', '-architecture', 'dtype', '-dtype', 'why_not_split', '-why_not_split', 'engine', '-engine', 'vllm_flags', '-vllm_flags', 'created_at', '-created_at']]
    q: str


class Models:
    """Operations under /api/v1/models."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[ModelsFilters]) -> Page[schemas.LanguageModel]:
        """Lists, creates, changes and deletes through the services."""
        answer = self._connection.call("GET", "/models/", query=with_commas(dict(filters), 'checkpoint__in', 'fields', 'name__in', 'ordering'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[ModelsFilters]) -> Iterator[schemas.LanguageModel]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/models/", query=with_commas(dict(filters), 'checkpoint__in', 'fields', 'name__in', 'ordering'))

    def create(self, body: schemas.LanguageModelRequest | None = None, *, idempotency_key: str | None = None) -> schemas.LanguageModel:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.LanguageModel', self._connection.call('POST', "/models/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def get(self, id: int, *, fields: list[Literal['activation_bytes_per_token', 'architecture', 'bytes_per_layer', 'checkpoint', 'created_at', 'dtype', 'embedding_bytes', 'engine', 'head_bytes', 'head_dim', 'id', 'max_context_tokens', 'name', 'num_heads', 'num_kv_heads', 'num_layers', 'token_bytes', 'vllm_flags', 'why_not_split']] | None = None) -> schemas.LanguageModel:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.LanguageModel', self._connection.call('GET', f"/models/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def get_tagged(self, id: int) -> Tagged[schemas.LanguageModel]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/models/{path_part(id)}/")

    def update(self, id: int, body: schemas.PatchedLanguageModelRequest | None = None, *, if_match: str | None = None) -> schemas.LanguageModel:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.LanguageModel', self._connection.call('PATCH', f"/models/{path_part(id)}/", body=body, headers={'If-Match': if_match}))

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """Lists, creates, changes and deletes through the services."""
        self._connection.call('DELETE', f"/models/{path_part(id)}/", headers={'If-Match': if_match})

    def batch(self, body: schemas.LanguageModelBatchRequest | None = None, *, idempotency_key: str | None = None) -> schemas.LanguageModelBatchDone:
        """Delete, change and make many rows at once: all of it or, if any is refused, nothing."""
        return cast('schemas.LanguageModelBatchDone', self._connection.call('POST', "/models/batch/", body=body, headers={'Idempotency-Key': idempotency_key}))
