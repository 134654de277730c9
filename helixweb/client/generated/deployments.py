"""Deployments. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, path_part
from helixweb.client.generated import schemas


class DeploymentsFilters(TypedDict, total=False):
    """Query parameters of GET /deployments/."""

    cluster: int
    limit: int
    model: int
    offset: int
    plan: int
    status: Literal['degraded', 'deploying', 'failed', 'ready', 'stopped', 'stopping', 'superseded']


class Deployments:
    """Operations under /api/v1/deployments."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[DeploymentsFilters]) -> Page[schemas.Deployment]:
        """A list, and each row with an ETag."""
        answer = self._connection.call("GET", "/deployments/", query=dict(filters))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[DeploymentsFilters]) -> Iterator[schemas.Deployment]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/deployments/", query=dict(filters))

    def create(self, body: schemas.DeployRequestRequest) -> schemas.Deployment:
        """Make a plan what its cluster runs; what ran there before is superseded."""
        return cast('schemas.Deployment', self._connection.call('POST', "/deployments/", body=body))

    def get(self, id: int) -> schemas.Deployment:
        """A list, and each row with an ETag."""
        return cast('schemas.Deployment', self._connection.call('GET', f"/deployments/{path_part(id)}/"))

    def instances(self, id: int) -> dict[str, Any]:
        """How its whole-model instances are, and what coordinators send them; empty without any."""
        return cast('dict[str, Any]', self._connection.call('GET', f"/deployments/{path_part(id)}/instances/"))

    def links(self, id: int) -> schemas.LinksAtWork:
        """What the links of a deployment do, and by which weights its requests are routed."""
        return cast('schemas.LinksAtWork', self._connection.call('GET', f"/deployments/{path_part(id)}/links/"))

    def pause(self, id: int) -> schemas.Deployment:
        """Let new requests wait; those that run go on to their end, and layers stay loaded."""
        return cast('schemas.Deployment', self._connection.call('POST', f"/deployments/{path_part(id)}/pause/"))

    def predictions(self, id: int) -> schemas.Agreement:
        """What was predicted of a deployment at its load, what is measured, and what to do."""
        return cast('schemas.Agreement', self._connection.call('GET', f"/deployments/{path_part(id)}/predictions/"))

    def resume(self, id: int) -> schemas.Deployment:
        """Let in what waits."""
        return cast('schemas.Deployment', self._connection.call('POST', f"/deployments/{path_part(id)}/resume/"))

    def roll_back(self, id: int) -> schemas.Deployment:
        """Deploy anew what served on the cluster before it, with its options."""
        return cast('schemas.Deployment', self._connection.call('POST', f"/deployments/{path_part(id)}/roll-back/"))

    def stop(self, id: int) -> schemas.Deployment:
        """Have every node let go of its layers."""
        return cast('schemas.Deployment', self._connection.call('POST', f"/deployments/{path_part(id)}/stop/"))

    def timeline(self, id: int) -> dict[str, Any]:
        """When every node was in which phase, as Plotly draws it, as a sentence and as a table."""
        return cast('dict[str, Any]', self._connection.call('GET', f"/deployments/{path_part(id)}/timeline/"))
