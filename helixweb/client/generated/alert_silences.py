"""AlertSilences. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part, with_commas
from helixweb.client.generated import schemas


class AlertSilencesFilters(TypedDict, total=False):
    """Query parameters of GET /alert-silences/."""

    cluster: int
    cluster__in: list[int]
    fields: list[Literal['cluster', 'comment', 'ends_at', 'id', 'rule', 'starts_at', 'subject']]
    limit: int
    offset: int
    ordering: list[Literal['id', '-id', 'cluster', '-cluster', 'rule', '-rule', 'subject', '-subject', 'starts_at', '-starts_at', 'ends_at', '-ends_at', 'comment', '-comment']]
    q: str
    rule: int
    rule__in: list[int]
    subject: str
    subject__in: list[str]


class AlertSilences:
    """Operations under /api/v1/alert-silences."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[AlertSilencesFilters]) -> Page[schemas.Silence]:
        """Rows that can be made, changed and deleted as well."""
        answer = self._connection.call("GET", "/alert-silences/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'ordering', 'rule__in', 'subject__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[AlertSilencesFilters]) -> Iterator[schemas.Silence]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/alert-silences/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'ordering', 'rule__in', 'subject__in'))

    def create(self, body: schemas.SilenceRequest, *, idempotency_key: str | None = None) -> schemas.Silence:
        """Rows that can be made, changed and deleted as well."""
        return cast('schemas.Silence', self._connection.call('POST', "/alert-silences/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def get(self, id: int, *, fields: list[Literal['cluster', 'comment', 'ends_at', 'id', 'rule', 'starts_at', 'subject']] | None = None) -> schemas.Silence:
        """Rows that can be made, changed and deleted as well."""
        return cast('schemas.Silence', self._connection.call('GET', f"/alert-silences/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def get_tagged(self, id: int) -> Tagged[schemas.Silence]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/alert-silences/{path_part(id)}/")

    def update(self, id: int, body: schemas.PatchedSilenceRequest | None = None, *, if_match: str | None = None) -> schemas.Silence:
        """Rows that can be made, changed and deleted as well."""
        return cast('schemas.Silence', self._connection.call('PATCH', f"/alert-silences/{path_part(id)}/", body=body, headers={'If-Match': if_match}))

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """Rows that can be made, changed and deleted as well."""
        self._connection.call('DELETE', f"/alert-silences/{path_part(id)}/", headers={'If-Match': if_match})

    def batch(self, body: schemas.SilenceBatchRequest | None = None, *, idempotency_key: str | None = None) -> schemas.SilenceBatchDone:
        """Delete, change and make many rows at once: all of it or, if any is refused, nothing."""
        return cast('schemas.SilenceBatchDone', self._connection.call('POST', "/alert-silences/batch/", body=body, headers={'Idempotency-Key': idempotency_key}))
