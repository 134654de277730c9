"""Models. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part
from helixweb.client.generated import schemas


class ModelsFilters(TypedDict, total=False):
    """Query parameters of GET /models/."""

    limit: int
    name: str
    offset: int


class Models:
    """Operations under /api/v1/models."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[ModelsFilters]) -> Page[schemas.LanguageModel]:
        """Lists, creates, changes and deletes through the services."""
        answer = self._connection.call("GET", "/models/", query=dict(filters))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[ModelsFilters]) -> Iterator[schemas.LanguageModel]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/models/", query=dict(filters))

    def create(self, body: schemas.LanguageModelRequest) -> schemas.LanguageModel:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.LanguageModel', self._connection.call('POST', "/models/", body=body))

    def get(self, id: int) -> schemas.LanguageModel:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.LanguageModel', self._connection.call('GET', f"/models/{path_part(id)}/"))

    def get_tagged(self, id: int) -> Tagged[schemas.LanguageModel]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/models/{path_part(id)}/")

    def update(self, id: int, body: schemas.PatchedLanguageModelRequest | None = None, *, if_match: str | None = None) -> schemas.LanguageModel:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.LanguageModel', self._connection.call('PATCH', f"/models/{path_part(id)}/", body=body, headers={'If-Match': if_match}))

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """Lists, creates, changes and deletes through the services."""
        self._connection.call('DELETE', f"/models/{path_part(id)}/", headers={'If-Match': if_match})
