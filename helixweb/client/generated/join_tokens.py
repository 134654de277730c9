"""JoinTokens. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part, with_commas
from helixweb.client.generated import schemas


class JoinTokensFilters(TypedDict, total=False):
    """Query parameters of GET /join-tokens/."""

    cluster: int
    cluster__in: list[int]
    created_at: str
    created_at__gte: str
    created_at__lte: str
    expires_at: str
    expires_at__gte: str
    expires_at__lte: str
    fields: list[Literal['cluster', 'command', 'created_at', 'expires_at', 'id', 'machines', 'machines_admitted', 'names_admitted', 'role', 'secret', 'used_at', 'used_by_name']]
    limit: int
    offset: int
    ordering: list[Literal['id', '-id', 'cluster', '-cluster', 'role', '-role', 'machines', '-machines', 'created_at', '-created_at', 'expires_at', '-expires_at', 'used_at', '-used_at', 'used_by_name', '-used_by_name']]
    q: str
    role: Literal['coordinator', 'node']
    role__in: list[str]
    used_at: str
    used_at__gte: str
    used_at__lte: str


class JoinTokens:
    """Operations under /api/v1/join-tokens."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[JoinTokensFilters]) -> Page[schemas.JoinToken]:
        """POST answers with the secret and the command that uses it; they are shown this once.

        DELETE lets one expire at once, used or not.
        """
        answer = self._connection.call("GET", "/join-tokens/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'ordering', 'role__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[JoinTokensFilters]) -> Iterator[schemas.JoinToken]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/join-tokens/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'ordering', 'role__in'))

    def create(self, body: schemas.JoinTokenRequest, *, idempotency_key: str | None = None) -> schemas.JoinToken:
        """POST answers with the secret and the command that uses it; they are shown this once.

        DELETE lets one expire at once, used or not.
        """
        return cast('schemas.JoinToken', self._connection.call('POST', "/join-tokens/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def get(self, id: int, *, fields: list[Literal['cluster', 'command', 'created_at', 'expires_at', 'id', 'machines', 'machines_admitted', 'names_admitted', 'role', 'secret', 'used_at', 'used_by_name']] | None = None) -> schemas.JoinToken:
        """POST answers with the secret and the command that uses it; they are shown this once.

        DELETE lets one expire at once, used or not.
        """
        return cast('schemas.JoinToken', self._connection.call('GET', f"/join-tokens/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def get_tagged(self, id: int) -> Tagged[schemas.JoinToken]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/join-tokens/{path_part(id)}/")

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """POST answers with the secret and the command that uses it; they are shown this once.

        DELETE lets one expire at once, used or not.
        """
        self._connection.call('DELETE', f"/join-tokens/{path_part(id)}/", headers={'If-Match': if_match})
