"""ModelMixes. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, path_part
from helixweb.client.generated import schemas


class ModelMixesFilters(TypedDict, total=False):
    """Query parameters of GET /model-mixes/."""

    cluster: int
    limit: int
    offset: int
    status: Literal['cancelled', 'failed', 'queued', 'running', 'succeeded']


class ModelMixes:
    """Operations under /api/v1/model-mixes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[ModelMixesFilters]) -> Page[schemas.ModelMix]:
        """A list, and each row with an ETag."""
        answer = self._connection.call("GET", "/model-mixes/", query=dict(filters))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[ModelMixesFilters]) -> Iterator[schemas.ModelMix]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/model-mixes/", query=dict(filters))

    def create(self, body: schemas.ModelMixRequestRequest) -> schemas.ModelMix:
        """Queue a plan for each of several models, no two of which use a node."""
        return cast('schemas.ModelMix', self._connection.call('POST', "/model-mixes/", body=body))

    def get(self, id: int) -> schemas.ModelMix:
        """A list, and each row with an ETag."""
        return cast('schemas.ModelMix', self._connection.call('GET', f"/model-mixes/{path_part(id)}/"))

    def cancel(self, id: int) -> schemas.ModelMix:
        """End the search; what it has is kept."""
        return cast('schemas.ModelMix', self._connection.call('POST', f"/model-mixes/{path_part(id)}/cancel/"))
