"""Requests. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, path_part, with_commas
from helixweb.client.generated import schemas


class RequestsFilters(TypedDict, total=False):
    """Query parameters of GET /requests/."""

    cluster: int
    fields: list[Literal['arrived_at', 'attempts', 'cluster', 'e2e_s', 'generation', 'model_name', 'nodes', 'outcome', 'output_tokens', 'prompt_tokens', 'queue_s', 'request', 'tpot_s', 'ttft_s']]
    limit: int
    node: str
    offset: int
    ordering: list[Literal['request', '-request', 'cluster', '-cluster', 'arrived_at', '-arrived_at', 'generation', '-generation', 'model_name', '-model_name', 'outcome', '-outcome', 'prompt_tokens', '-prompt_tokens', 'output_tokens', '-output_tokens', 'queue_s', '-queue_s', 'ttft_s', '-ttft_s', 'tpot_s', '-tpot_s', 'e2e_s', '-e2e_s', 'attempts', '-attempts']]
    outcome: Literal['cancelled', 'complete', 'failed']
    q: str
    request: str
    slower_than: float


class Requests:
    """Operations under /api/v1/requests."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[RequestsFilters]) -> Page[schemas.TracedRequest]:
        """Requests of the last day that their coordinators traced, newest first."""
        answer = self._connection.call("GET", "/requests/", query=with_commas(dict(filters), 'fields', 'ordering'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[RequestsFilters]) -> Iterator[schemas.TracedRequest]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/requests/", query=with_commas(dict(filters), 'fields', 'ordering'))

    def get(self, number: str, *, fields: list[Literal['arrived_at', 'attempts', 'cluster', 'e2e_s', 'generation', 'model_name', 'nodes', 'outcome', 'output_tokens', 'parts', 'prompt_tokens', 'queue_s', 'request', 'rows', 'token_times_s', 'tpot_s', 'ttft_s']] | None = None) -> schemas.TracedRequestDetail:
        """Requests of the last day that their coordinators traced, newest first."""
        return cast('schemas.TracedRequestDetail', self._connection.call('GET', f"/requests/{path_part(number)}/", query=with_commas({'fields': fields}, 'fields')))
