"""Clusters. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part, with_commas
from helixweb.client.generated import schemas


class ClustersFilters(TypedDict, total=False):
    """Query parameters of GET /clusters/."""

    coordinator_region: str
    coordinator_region__in: list[str]
    created_at: str
    created_at__gte: str
    created_at__lte: str
    fields: list[Literal['coordinator_region', 'created_at', 'id', 'mean_output_tokens', 'mean_prompt_tokens', 'name', 'replanning', 'source']]
    limit: int
    name: str
    name__in: list[str]
    offset: int
    ordering: list[Literal['id', '-id', 'name', '-name', 'coordinator_region', '-coordinator_region', 'mean_prompt_tokens', '-mean_prompt_tokens', 'mean_output_tokens', '-mean_output_tokens', 'replanning', '-replanning', 'source', '-source', 'created_at', '-created_at']]
    q: str
    replanning: Literal['ask', 'automatic', 'never']
    replanning__in: list[str]


class Clusters:
    """Operations under /api/v1/clusters."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[ClustersFilters]) -> Page[schemas.Cluster]:
        """Lists, creates, changes and deletes through the services."""
        answer = self._connection.call("GET", "/clusters/", query=with_commas(dict(filters), 'coordinator_region__in', 'fields', 'name__in', 'ordering', 'replanning__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[ClustersFilters]) -> Iterator[schemas.Cluster]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/clusters/", query=with_commas(dict(filters), 'coordinator_region__in', 'fields', 'name__in', 'ordering', 'replanning__in'))

    def create(self, body: schemas.ClusterRequest, *, idempotency_key: str | None = None) -> schemas.Cluster:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.Cluster', self._connection.call('POST', "/clusters/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def get(self, id: int, *, fields: list[Literal['coordinator_region', 'created_at', 'id', 'mean_output_tokens', 'mean_prompt_tokens', 'name', 'replanning', 'source']] | None = None) -> schemas.Cluster:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.Cluster', self._connection.call('GET', f"/clusters/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def get_tagged(self, id: int) -> Tagged[schemas.Cluster]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/clusters/{path_part(id)}/")

    def update(self, id: int, body: schemas.PatchedClusterRequest | None = None, *, if_match: str | None = None) -> schemas.Cluster:
        """Lists, creates, changes and deletes through the services."""
        return cast('schemas.Cluster', self._connection.call('PATCH', f"/clusters/{path_part(id)}/", body=body, headers={'If-Match': if_match}))

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """Lists, creates, changes and deletes through the services."""
        self._connection.call('DELETE', f"/clusters/{path_part(id)}/", headers={'If-Match': if_match})

    def bottleneck(self, id: int) -> schemas.Finding:
        """What limits a cluster now, in words."""
        return cast('schemas.Finding', self._connection.call('GET', f"/clusters/{path_part(id)}/bottleneck/"))

    def keep_measured_links(self, id: int, *, idempotency_key: str | None = None) -> schemas.Kept:
        """Have the next plan count on what slow links of a cluster were measured to carry."""
        return cast('schemas.Kept', self._connection.call('POST', f"/clusters/{path_part(id)}/keep-measured-links/", headers={'Idempotency-Key': idempotency_key}))

    def measure(self, id: int, body: schemas.MeasureRequest, *, idempotency_key: str | None = None) -> list[schemas.Profiling]:
        """Measure all nodes of a cluster that lack a fresh measurement for the model: those of
        different machines at once, those that share cores in turn.
        """
        return cast('list[schemas.Profiling]', self._connection.call('POST', f"/clusters/{path_part(id)}/measure/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def metrics(self, id: int, *, since: str | None = None, step: int | None = None) -> schemas.Series:
        """A cluster's metrics over time, at most seven days back and at most 900 points.

        A step without a report has no point.
        """
        return cast('schemas.Series', self._connection.call('GET', f"/clusters/{path_part(id)}/metrics/", query={'since': since, 'step': step}))

    def problem(self, id: int, *, model: int | None = None) -> dict[str, Any]:
        """The cluster as a `helixweb.problem/1` document."""
        return cast('dict[str, Any]', self._connection.call('GET', f"/clusters/{path_part(id)}/problem/", query={'model': model}))

    def reach(self, id: int) -> schemas.Reachability:
        """Which of its processes cannot reach which ports of others."""
        return cast('schemas.Reachability', self._connection.call('GET', f"/clusters/{path_part(id)}/reach/"))

    def batch(self, body: schemas.ClusterBatchRequest | None = None, *, idempotency_key: str | None = None) -> schemas.ClusterBatchDone:
        """Delete, change and make many rows at once: all of it or, if any is refused, nothing."""
        return cast('schemas.ClusterBatchDone', self._connection.call('POST', "/clusters/batch/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def demo(self, *, idempotency_key: str | None = None) -> schemas.Cluster:
        """Load the demo cluster, made by rule, unless it is there."""
        return cast('schemas.Cluster', self._connection.call('POST', "/clusters/demo/", headers={'Idempotency-Key': idempotency_key}))

    def import_(self, body: schemas.ImportRequest | None = None, *, idempotency_key: str | None = None) -> schemas.Cluster:
        """Store a problem file as a cluster, all or nothing."""
        return cast('schemas.Cluster', self._connection.call('POST', "/clusters/import/", body=body, headers={'Idempotency-Key': idempotency_key}))
