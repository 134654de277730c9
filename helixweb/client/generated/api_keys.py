"""ApiKeys. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part, with_commas
from helixweb.client.generated import schemas


class ApiKeysFilters(TypedDict, total=False):
    """Query parameters of GET /api-keys/."""

    cluster: int
    cluster__in: list[int]
    fields: list[Literal['cluster', 'created_at', 'expires_at', 'id', 'key', 'last_used_at', 'name', 'networks', 'owner', 'requests_per_min', 'revoked_at', 'scopes', 'secret', 'tokens_per_day', 'tokens_per_min', 'used', 'used_today']]
    limit: int
    name: str
    name__in: list[str]
    offset: int
    ordering: list[Literal['id', '-id', 'name', '-name', 'key', '-key', 'cluster', '-cluster', 'requests_per_min', '-requests_per_min', 'tokens_per_min', '-tokens_per_min', 'tokens_per_day', '-tokens_per_day', 'created_at', '-created_at', 'expires_at', '-expires_at', 'revoked_at', '-revoked_at', 'last_used_at', '-last_used_at']]
    q: str
    user__username: str
    user__username__in: list[str]


class ApiKeys:
    """Operations under /api/v1/api-keys."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[ApiKeysFilters]) -> Page[schemas.ApiKey]:
        """One's own keys, an administrator's list has everybody's; DELETE revokes one."""
        answer = self._connection.call("GET", "/api-keys/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'name__in', 'ordering', 'user__username__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[ApiKeysFilters]) -> Iterator[schemas.ApiKey]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/api-keys/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'name__in', 'ordering', 'user__username__in'))

    def create(self, body: schemas.ApiKeyRequest, *, idempotency_key: str | None = None) -> schemas.ApiKey:
        """A key that makes keys makes none that may do more than itself."""
        return cast('schemas.ApiKey', self._connection.call('POST', "/api-keys/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def get(self, id: int, *, fields: list[Literal['cluster', 'created_at', 'expires_at', 'id', 'key', 'last_used_at', 'name', 'networks', 'owner', 'requests_per_min', 'revoked_at', 'scopes', 'secret', 'tokens_per_day', 'tokens_per_min', 'used', 'used_today']] | None = None) -> schemas.ApiKey:
        """One's own keys, an administrator's list has everybody's; DELETE revokes one."""
        return cast('schemas.ApiKey', self._connection.call('GET', f"/api-keys/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def get_tagged(self, id: int) -> Tagged[schemas.ApiKey]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/api-keys/{path_part(id)}/")

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """One's own keys, an administrator's list has everybody's; DELETE revokes one."""
        self._connection.call('DELETE', f"/api-keys/{path_part(id)}/", headers={'If-Match': if_match})
