"""Alerts. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, path_part, with_commas
from helixweb.client.generated import schemas


class AlertsFilters(TypedDict, total=False):
    """Query parameters of GET /alerts/."""

    cluster: int
    cluster__in: list[int]
    fields: list[Literal['acknowledged_at', 'acknowledged_by', 'cluster', 'comment', 'fired_at', 'flaps', 'id', 'kind', 'resolved_at', 'rule', 'rule_name', 'severity', 'silenced', 'since', 'state', 'subject', 'text', 'value']]
    limit: int
    offset: int
    ordering: list[Literal['id', '-id', 'cluster', '-cluster', 'rule', '-rule', 'subject', '-subject', 'severity', '-severity', 'state', '-state', 'value', '-value', 'since', '-since', 'fired_at', '-fired_at', 'resolved_at', '-resolved_at', 'flaps', '-flaps', 'silenced', '-silenced', 'acknowledged_at', '-acknowledged_at', 'acknowledged_by', '-acknowledged_by', 'comment', '-comment']]
    q: str
    rule: int
    rule__in: list[int]
    rule__kind: Literal['certificate_expires', 'coordinator_lost', 'deployment_failed', 'itl_p95', 'key_expires', 'kv_promised', 'link_slow', 'node_lost', 'plan_stale', 'requests_waiting', 'ttft_p95']
    rule__kind__in: list[str]
    severity: Literal['critical', 'warning']
    severity__in: list[str]
    state: Literal['firing', 'pending', 'resolved']
    state__in: list[str]
    subject: str
    subject__in: list[str]


class Alerts:
    """Operations under /api/v1/alerts."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[AlertsFilters]) -> Page[schemas.Alert]:
        """What fires, what may soon, and what was over within a month; the newest first."""
        answer = self._connection.call("GET", "/alerts/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'ordering', 'rule__in', 'rule__kind__in', 'severity__in', 'state__in', 'subject__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[AlertsFilters]) -> Iterator[schemas.Alert]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/alerts/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'ordering', 'rule__in', 'rule__kind__in', 'severity__in', 'state__in', 'subject__in'))

    def get(self, id: int, *, fields: list[Literal['acknowledged_at', 'acknowledged_by', 'cluster', 'comment', 'fired_at', 'flaps', 'id', 'kind', 'resolved_at', 'rule', 'rule_name', 'severity', 'silenced', 'since', 'state', 'subject', 'text', 'value']] | None = None) -> schemas.Alert:
        """What fires, what may soon, and what was over within a month; the newest first."""
        return cast('schemas.Alert', self._connection.call('GET', f"/alerts/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def acknowledge(self, id: int, body: schemas.AcknowledgeRequest | None = None, *, idempotency_key: str | None = None) -> schemas.Alert:
        """Say that somebody looks after it."""
        return cast('schemas.Alert', self._connection.call('POST', f"/alerts/{path_part(id)}/acknowledge/", body=body, headers={'Idempotency-Key': idempotency_key}))
