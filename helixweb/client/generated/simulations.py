"""Simulations. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, path_part
from helixweb.client.generated import schemas


class SimulationsFilters(TypedDict, total=False):
    """Query parameters of GET /simulations/."""

    limit: int
    offset: int
    plan: int
    status: Literal['cancelled', 'failed', 'queued', 'running', 'succeeded']


class Simulations:
    """Operations under /api/v1/simulations."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[SimulationsFilters]) -> Page[schemas.Simulation]:
        """A list, and each row with an ETag."""
        answer = self._connection.call("GET", "/simulations/", query=dict(filters))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[SimulationsFilters]) -> Iterator[schemas.Simulation]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/simulations/", query=dict(filters))

    def create(self, body: schemas.SimulationRequestRequest) -> schemas.Simulation:
        """Queue a simulation of a plan."""
        return cast('schemas.Simulation', self._connection.call('POST', "/simulations/", body=body))

    def get(self, id: int) -> schemas.Simulation:
        """A list, and each row with an ETag."""
        return cast('schemas.Simulation', self._connection.call('GET', f"/simulations/{path_part(id)}/"))

    def cancel(self, id: int) -> schemas.Simulation:
        """End a simulation; nothing of it is kept."""
        return cast('schemas.Simulation', self._connection.call('POST', f"/simulations/{path_part(id)}/cancel/"))
