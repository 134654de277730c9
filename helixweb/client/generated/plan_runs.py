"""PlanRuns. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, path_part, with_commas
from helixweb.client.generated import schemas


class PlanRunsFilters(TypedDict, total=False):
    """Query parameters of GET /plan-runs/."""

    cluster: int
    cluster__in: list[int]
    created_at: str
    created_at__gte: str
    created_at__lte: str
    fields: list[Literal['accept_requested', 'attempt', 'cancel_requested', 'cluster', 'continues', 'created_at', 'created_by', 'error', 'finished_at', 'flow_tokens_per_s', 'gap', 'id', 'mix', 'model', 'objective_value', 'options', 'plan', 'solver', 'start_plan', 'started_at', 'status', 'survive_one_loss', 'upper_bound_tokens_per_s', 'what_if']]
    flow_tokens_per_s: float
    flow_tokens_per_s__gte: float
    flow_tokens_per_s__lte: float
    limit: int
    model: int
    model__in: list[int]
    offset: int
    ordering: list[Literal['id', '-id', 'cluster', '-cluster', 'model', '-model', 'status', '-status', 'attempt', '-attempt', 'cancel_requested', '-cancel_requested', 'accept_requested', '-accept_requested', 'error', '-error', 'survive_one_loss', '-survive_one_loss', 'what_if', '-what_if', 'start_plan', '-start_plan', 'continues', '-continues', 'mix', '-mix', 'solver', '-solver', 'flow_tokens_per_s', '-flow_tokens_per_s', 'upper_bound_tokens_per_s', '-upper_bound_tokens_per_s', 'objective_value', '-objective_value', 'created_at', '-created_at', 'started_at', '-started_at', 'finished_at', '-finished_at']]
    q: str
    status: Literal['cancelled', 'failed', 'queued', 'running', 'succeeded']
    status__in: list[str]


class PlanRunsIncumbentsFilters(TypedDict, total=False):
    """Query parameters of GET /plan-runs/{id}/incumbents/."""

    limit: int
    offset: int


class PlanRuns:
    """Operations under /api/v1/plan-runs."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[PlanRunsFilters]) -> Page[schemas.PlanRun]:
        """A list and each row, with ETags."""
        answer = self._connection.call("GET", "/plan-runs/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'model__in', 'ordering', 'status__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[PlanRunsFilters]) -> Iterator[schemas.PlanRun]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/plan-runs/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'model__in', 'ordering', 'status__in'))

    def create(self, body: schemas.PlanRunRequestRequest, *, idempotency_key: str | None = None) -> schemas.PlanRun:
        """Queue a search for a plan of the cluster as it is now."""
        return cast('schemas.PlanRun', self._connection.call('POST', "/plan-runs/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def get(self, id: int, *, fields: list[Literal['accept_requested', 'attempt', 'cancel_requested', 'cluster', 'continues', 'created_at', 'created_by', 'error', 'finished_at', 'flow_tokens_per_s', 'gap', 'id', 'mix', 'model', 'objective_value', 'options', 'plan', 'solver', 'start_plan', 'started_at', 'status', 'survive_one_loss', 'upper_bound_tokens_per_s', 'what_if']] | None = None) -> schemas.PlanRun:
        """A list and each row, with ETags."""
        return cast('schemas.PlanRun', self._connection.call('GET', f"/plan-runs/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def accept(self, id: int, *, idempotency_key: str | None = None) -> schemas.PlanRun:
        """End a running search with the best plan so far, as a success."""
        return cast('schemas.PlanRun', self._connection.call('POST', f"/plan-runs/{path_part(id)}/accept/", headers={'Idempotency-Key': idempotency_key}))

    def adopt(self, id: int, body: schemas.AdoptionRequest, *, idempotency_key: str | None = None) -> schemas.PlanRun:
        """Make a plan of another of a replanning's answers; it comes as a finished run."""
        return cast('schemas.PlanRun', self._connection.call('POST', f"/plan-runs/{path_part(id)}/adopt/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def cancel(self, id: int, *, idempotency_key: str | None = None) -> schemas.PlanRun:
        """End the search; the best plan so far is kept."""
        return cast('schemas.PlanRun', self._connection.call('POST', f"/plan-runs/{path_part(id)}/cancel/", headers={'Idempotency-Key': idempotency_key}))

    def extend(self, id: int, body: schemas.ExtensionRequest, *, idempotency_key: str | None = None) -> schemas.PlanRun:
        """Queue a run that goes on from where this one ended, on the same problem."""
        return cast('schemas.PlanRun', self._connection.call('POST', f"/plan-runs/{path_part(id)}/extend/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def incumbents_page(self, id: int, **filters: Unpack[PlanRunsIncumbentsFilters]) -> Page[schemas.Incumbent]:
        """Every better placement or bound so far, oldest first."""
        answer = self._connection.call("GET", f"/plan-runs/{path_part(id)}/incumbents/", query=dict(filters))
        return Page(count=answer["count"], results=answer["results"])

    def incumbents(self, id: int, **filters: Unpack[PlanRunsIncumbentsFilters]) -> Iterator[schemas.Incumbent]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages(f"/plan-runs/{path_part(id)}/incumbents/", query=dict(filters))

    def replan(self, id: int) -> schemas.Replan:
        """The answers of a run that searched around a running plan."""
        return cast('schemas.Replan', self._connection.call('GET', f"/plan-runs/{path_part(id)}/replan/"))
