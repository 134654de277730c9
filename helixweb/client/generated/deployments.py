"""Deployments. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, path_part, with_commas
from helixweb.client.generated import schemas


class DeploymentsFilters(TypedDict, total=False):
    """Query parameters of GET /deployments/."""

    cluster: int
    cluster__in: list[int]
    created_at: str
    created_at__gte: str
    created_at__lte: str
    emulated: bool
    fields: list[Literal['assignments', 'backend_by_node', 'checkpoint', 'cluster', 'created_at', 'created_by', 'emulated', 'ended_at', 'engine', 'engine_by_node', 'follows_generation', 'generation', 'id', 'kv_high_water', 'max_batch_tokens', 'max_context_tokens', 'max_queued_requests', 'message', 'model', 'model_name', 'page_tokens', 'paused_at', 'pinned_checkpoint', 'plan', 'pushed_at', 'ready_at', 'status', 'tensor_parallel', 'tensor_parallel_by_node', 'theta', 'took_over_at']]
    limit: int
    model: int
    model__in: list[int]
    offset: int
    ordering: list[Literal['id', '-id', 'cluster', '-cluster', 'plan', '-plan', 'model', '-model', 'model_name', '-model_name', 'checkpoint', '-checkpoint', 'pinned_checkpoint', '-pinned_checkpoint', 'generation', '-generation', 'status', '-status', 'message', '-message', 'emulated', '-emulated', 'page_tokens', '-page_tokens', 'max_batch_tokens', '-max_batch_tokens', 'kv_high_water', '-kv_high_water', 'max_queued_requests', '-max_queued_requests', 'max_context_tokens', '-max_context_tokens', 'tensor_parallel', '-tensor_parallel', 'engine', '-engine', 'theta', '-theta', 'created_at', '-created_at', 'ready_at', '-ready_at', 'ended_at', '-ended_at', 'pushed_at', '-pushed_at', 'follows_generation', '-follows_generation', 'took_over_at', '-took_over_at', 'paused_at', '-paused_at']]
    plan: int
    plan__in: list[int]
    q: str
    status: Literal['degraded', 'deploying', 'failed', 'ready', 'stopped', 'stopping', 'superseded']
    status__in: list[str]


class Deployments:
    """Operations under /api/v1/deployments."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[DeploymentsFilters]) -> Page[schemas.Deployment]:
        """A list and each row, with ETags."""
        answer = self._connection.call("GET", "/deployments/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'model__in', 'ordering', 'plan__in', 'status__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[DeploymentsFilters]) -> Iterator[schemas.Deployment]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/deployments/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'model__in', 'ordering', 'plan__in', 'status__in'))

    def create(self, body: schemas.DeployRequestRequest, *, idempotency_key: str | None = None) -> schemas.Deployment:
        """Make a plan what its cluster runs; what ran there before is superseded."""
        return cast('schemas.Deployment', self._connection.call('POST', "/deployments/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def get(self, id: int, *, fields: list[Literal['assignments', 'backend_by_node', 'checkpoint', 'cluster', 'created_at', 'created_by', 'emulated', 'ended_at', 'engine', 'engine_by_node', 'follows_generation', 'generation', 'id', 'kv_high_water', 'max_batch_tokens', 'max_context_tokens', 'max_queued_requests', 'message', 'model', 'model_name', 'page_tokens', 'paused_at', 'pinned_checkpoint', 'plan', 'pushed_at', 'ready_at', 'status', 'tensor_parallel', 'tensor_parallel_by_node', 'theta', 'took_over_at']] | None = None) -> schemas.Deployment:
        """A list and each row, with ETags."""
        return cast('schemas.Deployment', self._connection.call('GET', f"/deployments/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def instances(self, id: int) -> dict[str, Any]:
        """How its whole-model instances are, and what coordinators send them; empty without any."""
        return cast('dict[str, Any]', self._connection.call('GET', f"/deployments/{path_part(id)}/instances/"))

    def links(self, id: int) -> schemas.LinksAtWork:
        """What the links of a deployment do, and by which weights its requests are routed."""
        return cast('schemas.LinksAtWork', self._connection.call('GET', f"/deployments/{path_part(id)}/links/"))

    def pause(self, id: int, *, idempotency_key: str | None = None) -> schemas.Deployment:
        """Let new requests wait; those that run go on to their end, and layers stay loaded."""
        return cast('schemas.Deployment', self._connection.call('POST', f"/deployments/{path_part(id)}/pause/", headers={'Idempotency-Key': idempotency_key}))

    def predictions(self, id: int) -> schemas.Agreement:
        """What was predicted of a deployment at its load, what is measured, and what to do."""
        return cast('schemas.Agreement', self._connection.call('GET', f"/deployments/{path_part(id)}/predictions/"))

    def resume(self, id: int, *, idempotency_key: str | None = None) -> schemas.Deployment:
        """Let in what waits."""
        return cast('schemas.Deployment', self._connection.call('POST', f"/deployments/{path_part(id)}/resume/", headers={'Idempotency-Key': idempotency_key}))

    def roll_back(self, id: int, *, idempotency_key: str | None = None) -> schemas.Deployment:
        """Deploy anew what served on the cluster before it, with its options."""
        return cast('schemas.Deployment', self._connection.call('POST', f"/deployments/{path_part(id)}/roll-back/", headers={'Idempotency-Key': idempotency_key}))

    def stop(self, id: int, *, idempotency_key: str | None = None) -> schemas.Deployment:
        """Have every node let go of its layers."""
        return cast('schemas.Deployment', self._connection.call('POST', f"/deployments/{path_part(id)}/stop/", headers={'Idempotency-Key': idempotency_key}))

    def timeline(self, id: int) -> dict[str, Any]:
        """When every node was in which phase, as Plotly draws it, as a sentence and as a table."""
        return cast('dict[str, Any]', self._connection.call('GET', f"/deployments/{path_part(id)}/timeline/"))

    def weights(self, id: int, body: schemas.HoldingRequest, *, idempotency_key: str | None = None) -> schemas.LinksAtWork:
        """Route by the plan's weights whatever links do, or let weights follow links again."""
        return cast('schemas.LinksAtWork', self._connection.call('POST', f"/deployments/{path_part(id)}/weights/", body=body, headers={'Idempotency-Key': idempotency_key}))
