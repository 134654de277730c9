"""AlertRules. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part, with_commas
from helixweb.client.generated import schemas


class AlertRulesFilters(TypedDict, total=False):
    """Query parameters of GET /alert-rules/."""

    cluster: int
    cluster__in: list[int]
    enabled: bool
    fields: list[Literal['channels', 'clears_at', 'cluster', 'enabled', 'for_s', 'id', 'kind', 'name', 'resolve_s', 'severity', 'threshold', 'unit']]
    kind: Literal['certificate_expires', 'coordinator_lost', 'deployment_failed', 'itl_p95', 'key_expires', 'kv_promised', 'link_slow', 'node_lost', 'plan_stale', 'requests_waiting', 'ttft_p95']
    kind__in: list[str]
    limit: int
    offset: int
    ordering: list[Literal['id', '-id', 'cluster', '-cluster', 'name', '-name', 'kind', '-kind', 'threshold', '-threshold', 'clears_at', '-clears_at', 'for_s', '-for_s', 'resolve_s', '-resolve_s', 'severity', '-severity', 'enabled', '-enabled']]
    q: str
    severity: Literal['critical', 'warning']
    severity__in: list[str]


class AlertRules:
    """Operations under /api/v1/alert-rules."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[AlertRulesFilters]) -> Page[schemas.Rule]:
        """Rows that can be made, changed and deleted as well."""
        answer = self._connection.call("GET", "/alert-rules/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'kind__in', 'ordering', 'severity__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[AlertRulesFilters]) -> Iterator[schemas.Rule]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/alert-rules/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'kind__in', 'ordering', 'severity__in'))

    def create(self, body: schemas.RuleRequest, *, idempotency_key: str | None = None) -> schemas.Rule:
        """Rows that can be made, changed and deleted as well."""
        return cast('schemas.Rule', self._connection.call('POST', "/alert-rules/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def get(self, id: int, *, fields: list[Literal['channels', 'clears_at', 'cluster', 'enabled', 'for_s', 'id', 'kind', 'name', 'resolve_s', 'severity', 'threshold', 'unit']] | None = None) -> schemas.Rule:
        """Rows that can be made, changed and deleted as well."""
        return cast('schemas.Rule', self._connection.call('GET', f"/alert-rules/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def get_tagged(self, id: int) -> Tagged[schemas.Rule]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/alert-rules/{path_part(id)}/")

    def update(self, id: int, body: schemas.PatchedRuleRequest | None = None, *, if_match: str | None = None) -> schemas.Rule:
        """Rows that can be made, changed and deleted as well."""
        return cast('schemas.Rule', self._connection.call('PATCH', f"/alert-rules/{path_part(id)}/", body=body, headers={'If-Match': if_match}))

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """Rows that can be made, changed and deleted as well."""
        self._connection.call('DELETE', f"/alert-rules/{path_part(id)}/", headers={'If-Match': if_match})

    def batch(self, body: schemas.RuleBatchRequest | None = None, *, idempotency_key: str | None = None) -> schemas.RuleBatchDone:
        """Delete, change and make many rows at once: all of it or, if any is refused, nothing."""
        return cast('schemas.RuleBatchDone', self._connection.call('POST', "/alert-rules/batch/", body=body, headers={'Idempotency-Key': idempotency_key}))
