"""Simulations. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, path_part, with_commas
from helixweb.client.generated import schemas


class SimulationsFilters(TypedDict, total=False):
    """Query parameters of GET /simulations/."""

    created_at: str
    created_at__gte: str
    created_at__lte: str
    fields: list[Literal['burst_size', 'created_at', 'created_by', 'error', 'finished_at', 'forecast', 'id', 'plan', 'policy', 'progress', 'requests_per_s', 'seed', 'share', 'started_at', 'status', 'workload']]
    limit: int
    offset: int
    ordering: list[Literal['id', '-id', 'plan', '-plan', 'status', '-status', 'progress', '-progress', 'error', '-error', 'workload', '-workload', 'share', '-share', 'burst_size', '-burst_size', 'policy', '-policy', 'seed', '-seed', 'requests_per_s', '-requests_per_s', 'created_at', '-created_at', 'started_at', '-started_at', 'finished_at', '-finished_at']]
    plan: int
    plan__in: list[int]
    policy: Literal['published', 'runtime']
    policy__in: list[str]
    q: str
    status: Literal['cancelled', 'failed', 'queued', 'running', 'succeeded']
    status__in: list[str]
    workload: Literal['backlog', 'bursts', 'poisson']
    workload__in: list[str]


class Simulations:
    """Operations under /api/v1/simulations."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[SimulationsFilters]) -> Page[schemas.Simulation]:
        """A list and each row, with ETags."""
        answer = self._connection.call("GET", "/simulations/", query=with_commas(dict(filters), 'fields', 'ordering', 'plan__in', 'policy__in', 'status__in', 'workload__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[SimulationsFilters]) -> Iterator[schemas.Simulation]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/simulations/", query=with_commas(dict(filters), 'fields', 'ordering', 'plan__in', 'policy__in', 'status__in', 'workload__in'))

    def create(self, body: schemas.SimulationRequestRequest, *, idempotency_key: str | None = None) -> schemas.Simulation:
        """Queue a simulation of a plan."""
        return cast('schemas.Simulation', self._connection.call('POST', "/simulations/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def get(self, id: int, *, fields: list[Literal['burst_size', 'created_at', 'created_by', 'error', 'finished_at', 'forecast', 'id', 'plan', 'policy', 'progress', 'requests_per_s', 'seed', 'share', 'started_at', 'status', 'workload']] | None = None) -> schemas.Simulation:
        """A list and each row, with ETags."""
        return cast('schemas.Simulation', self._connection.call('GET', f"/simulations/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def cancel(self, id: int, *, idempotency_key: str | None = None) -> schemas.Simulation:
        """End a simulation; nothing of it is kept."""
        return cast('schemas.Simulation', self._connection.call('POST', f"/simulations/{path_part(id)}/cancel/", headers={'Idempotency-Key': idempotency_key}))
