"""Sessions. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, path_part
from helixweb.client.generated import schemas


class SessionsFilters(TypedDict, total=False):
    """Query parameters of GET /sessions/."""

    limit: int
    offset: int


class Sessions:
    """Operations under /api/v1/sessions."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[SessionsFilters]) -> Page[schemas.Session]:
        """Where one is logged in; DELETE ends one."""
        answer = self._connection.call("GET", "/sessions/", query=dict(filters))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[SessionsFilters]) -> Iterator[schemas.Session]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/sessions/", query=dict(filters))

    def delete(self, id: int) -> None:
        """Where one is logged in; DELETE ends one."""
        self._connection.call('DELETE', f"/sessions/{path_part(id)}/")

    def end_others(self, *, idempotency_key: str | None = None) -> schemas.Ended:
        """End all but the one that asks; a key ends all."""
        return cast('schemas.Ended', self._connection.call('POST', "/sessions/end-others/", headers={'Idempotency-Key': idempotency_key}))
