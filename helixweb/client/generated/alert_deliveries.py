"""AlertDeliveries. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, path_part, with_commas
from helixweb.client.generated import schemas


class AlertDeliveriesFilters(TypedDict, total=False):
    """Query parameters of GET /alert-deliveries/."""

    channel: int
    channel__cluster: int
    channel__cluster__in: list[int]
    channel__in: list[int]
    fields: list[Literal['attempt', 'attempts', 'channel', 'created_at', 'error', 'finished_at', 'id', 'next_try_at', 'number', 'occasion', 'status', 'told']]
    limit: int
    occasion: Literal['alerts', 'alive', 'test']
    occasion__in: list[str]
    offset: int
    ordering: list[Literal['id', '-id', 'channel', '-channel', 'occasion', '-occasion', 'number', '-number', 'status', '-status', 'attempt', '-attempt', 'error', '-error', 'created_at', '-created_at', 'next_try_at', '-next_try_at', 'finished_at', '-finished_at']]
    q: str
    status: Literal['cancelled', 'failed', 'queued', 'running', 'succeeded']
    status__in: list[str]


class AlertDeliveries:
    """Operations under /api/v1/alert-deliveries."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[AlertDeliveriesFilters]) -> Page[schemas.Delivery]:
        """What was told and what is to be, the newest first; with every try."""
        answer = self._connection.call("GET", "/alert-deliveries/", query=with_commas(dict(filters), 'channel__cluster__in', 'channel__in', 'fields', 'occasion__in', 'ordering', 'status__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[AlertDeliveriesFilters]) -> Iterator[schemas.Delivery]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/alert-deliveries/", query=with_commas(dict(filters), 'channel__cluster__in', 'channel__in', 'fields', 'occasion__in', 'ordering', 'status__in'))

    def get(self, id: int, *, fields: list[Literal['attempt', 'attempts', 'channel', 'created_at', 'error', 'finished_at', 'id', 'next_try_at', 'number', 'occasion', 'status', 'told']] | None = None) -> schemas.Delivery:
        """What was told and what is to be, the newest first; with every try."""
        return cast('schemas.Delivery', self._connection.call('GET', f"/alert-deliveries/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def again(self, id: int, *, idempotency_key: str | None = None) -> schemas.Delivery:
        """Try one that failed anew, under its old number."""
        return cast('schemas.Delivery', self._connection.call('POST', f"/alert-deliveries/{path_part(id)}/again/", headers={'Idempotency-Key': idempotency_key}))
