"""PlanRuns. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, path_part
from helixweb.client.generated import schemas


class PlanRunsFilters(TypedDict, total=False):
    """Query parameters of GET /plan-runs/."""

    cluster: int
    limit: int
    model: int
    offset: int
    status: Literal['cancelled', 'failed', 'queued', 'running', 'succeeded']


class PlanRunsIncumbentsFilters(TypedDict, total=False):
    """Query parameters of GET /plan-runs/{id}/incumbents/."""

    limit: int
    offset: int


class PlanRuns:
    """Operations under /api/v1/plan-runs."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[PlanRunsFilters]) -> Page[schemas.PlanRun]:
        """A list, and each row with an ETag."""
        answer = self._connection.call("GET", "/plan-runs/", query=dict(filters))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[PlanRunsFilters]) -> Iterator[schemas.PlanRun]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/plan-runs/", query=dict(filters))

    def create(self, body: schemas.PlanRunRequestRequest) -> schemas.PlanRun:
        """Queue a search for a plan of the cluster as it is now."""
        return cast('schemas.PlanRun', self._connection.call('POST', "/plan-runs/", body=body))

    def get(self, id: int) -> schemas.PlanRun:
        """A list, and each row with an ETag."""
        return cast('schemas.PlanRun', self._connection.call('GET', f"/plan-runs/{path_part(id)}/"))

    def accept(self, id: int) -> schemas.PlanRun:
        """End a running search with the best plan so far, as a success."""
        return cast('schemas.PlanRun', self._connection.call('POST', f"/plan-runs/{path_part(id)}/accept/"))

    def adopt(self, id: int, body: schemas.AdoptionRequest) -> schemas.PlanRun:
        """Make a plan of another of a replanning's answers; it comes as a finished run."""
        return cast('schemas.PlanRun', self._connection.call('POST', f"/plan-runs/{path_part(id)}/adopt/", body=body))

    def cancel(self, id: int) -> schemas.PlanRun:
        """End the search; the best plan so far is kept."""
        return cast('schemas.PlanRun', self._connection.call('POST', f"/plan-runs/{path_part(id)}/cancel/"))

    def extend(self, id: int, body: schemas.ExtensionRequest) -> schemas.PlanRun:
        """Queue a run that goes on from where this one ended, on the same problem."""
        return cast('schemas.PlanRun', self._connection.call('POST', f"/plan-runs/{path_part(id)}/extend/", body=body))

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
