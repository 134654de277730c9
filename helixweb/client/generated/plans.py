"""Plans. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, path_part, with_commas
from helixweb.client.generated import schemas


class PlansFilters(TypedDict, total=False):
    """Query parameters of GET /plans/."""

    cluster: int
    cluster__in: list[int]
    created_at: str
    created_at__gte: str
    created_at__lte: str
    fields: list[Literal['cluster', 'created_at', 'flow_tokens_per_s', 'gap', 'hops', 'id', 'model', 'run', 'upper_bound_tokens_per_s']]
    flow_tokens_per_s: float
    flow_tokens_per_s__gte: float
    flow_tokens_per_s__lte: float
    limit: int
    model: int
    model__in: list[int]
    offset: int
    ordering: list[Literal['id', '-id', 'cluster', '-cluster', 'model', '-model', 'run', '-run', 'flow_tokens_per_s', '-flow_tokens_per_s', 'upper_bound_tokens_per_s', '-upper_bound_tokens_per_s', 'hops', '-hops', 'created_at', '-created_at']]
    q: str
    run: int
    run__in: list[int]


class Plans:
    """Operations under /api/v1/plans."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[PlansFilters]) -> Page[schemas.PlanSummary]:
        """A list and each row, with ETags."""
        answer = self._connection.call("GET", "/plans/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'model__in', 'ordering', 'run__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[PlansFilters]) -> Iterator[schemas.PlanSummary]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/plans/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'model__in', 'ordering', 'run__in'))

    def get(self, id: int, *, fields: list[Literal['cluster', 'created_at', 'document', 'flow_tokens_per_s', 'gap', 'hops', 'id', 'model', 'run', 'upper_bound_tokens_per_s']] | None = None) -> schemas.Plan:
        """A list and each row, with ETags."""
        return cast('schemas.Plan', self._connection.call('GET', f"/plans/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def explanation(self, id: int) -> schemas.Explanation:
        """What limits the plan, what survives a loss, what one more of each resource is worth."""
        return cast('schemas.Explanation', self._connection.call('GET', f"/plans/{path_part(id)}/explanation/"))

    def post_explanation(self, id: int, body: schemas.ExplanationRequestRequest | None = None, *, idempotency_key: str | None = None) -> schemas.Explanation:
        """Queue an explanation, with a search for each kind of node if seconds are given."""
        return cast('schemas.Explanation', self._connection.call('POST', f"/plans/{path_part(id)}/explanation/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def figures(self, figure: Literal['flow', 'layers', 'utilisation'], id: int) -> dict[str, Any]:
        """One of the plan's charts as Plotly draws it, and its facts as a sentence and a table."""
        return cast('dict[str, Any]', self._connection.call('GET', f"/plans/{path_part(id)}/figures/{path_part(figure)}/"))

    def replan(self, id: int, body: schemas.ReplanRequestRequest | None = None, *, idempotency_key: str | None = None) -> schemas.PlanRun:
        """Queue a search around this plan on the cluster as it is now, moving few bytes."""
        return cast('schemas.PlanRun', self._connection.call('POST', f"/plans/{path_part(id)}/replan/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def unmoved(self, id: int) -> schemas.Unmoved:
        """What this plan's placement carries on the cluster as it is now, no layer moved."""
        return cast('schemas.Unmoved', self._connection.call('GET', f"/plans/{path_part(id)}/unmoved/"))

    def what_if(self, id: int, body: schemas.WhatIfRequest | None = None, *, idempotency_key: str | None = None) -> schemas.WhatIfAnswer:
        """What this plan is worth on a changed copy of its cluster, by estimate.

        With `options` a search on the copy is queued as well, beginning with the plan.
        """
        return cast('schemas.WhatIfAnswer', self._connection.call('POST', f"/plans/{path_part(id)}/what-if/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def compare(self, *, plan: list[int]) -> schemas.Comparison:
        """Two to four plans side by side: forecast, flow, hops, and which layers lie elsewhere."""
        return cast('schemas.Comparison', self._connection.call('GET', "/plans/compare/", query={'plan': plan}))
