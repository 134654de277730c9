"""JoinTokens. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, path_part
from helixweb.client.generated import schemas


class JoinTokensFilters(TypedDict, total=False):
    """Query parameters of GET /join-tokens/."""

    cluster: int
    limit: int
    offset: int
    role: Literal['coordinator', 'node']


class JoinTokens:
    """Operations under /api/v1/join-tokens."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[JoinTokensFilters]) -> Page[schemas.JoinToken]:
        """POST answers with the secret and the command that uses it; they are shown this once."""
        answer = self._connection.call("GET", "/join-tokens/", query=dict(filters))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[JoinTokensFilters]) -> Iterator[schemas.JoinToken]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/join-tokens/", query=dict(filters))

    def create(self, body: schemas.JoinTokenRequest) -> schemas.JoinToken:
        """POST answers with the secret and the command that uses it; they are shown this once."""
        return cast('schemas.JoinToken', self._connection.call('POST', "/join-tokens/", body=body))

    def get(self, id: int) -> schemas.JoinToken:
        """POST answers with the secret and the command that uses it; they are shown this once."""
        return cast('schemas.JoinToken', self._connection.call('GET', f"/join-tokens/{path_part(id)}/"))
