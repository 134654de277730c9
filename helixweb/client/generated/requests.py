"""Requests. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, path_part, with_commas
from helixweb.client.generated import schemas


class RequestsFilters(TypedDict, total=False):
    """Query parameters of GET /requests/."""

    cluster: int
    limit: int
    node: str
    offset: int
    order: list[Literal['-arrived_at', '-e2e_s', '-output_tokens', '-queue_s', '-ttft_s']]
    outcome: Literal['cancelled', 'complete', 'failed']
    request: str
    slower_than: float


class Requests:
    """Operations under /api/v1/requests."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[RequestsFilters]) -> Page[schemas.TracedRequest]:
        """Requests of the last day that their coordinators traced, newest first."""
        answer = self._connection.call("GET", "/requests/", query=with_commas(dict(filters), 'order'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[RequestsFilters]) -> Iterator[schemas.TracedRequest]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/requests/", query=with_commas(dict(filters), 'order'))

    def get(self, number: str) -> schemas.TracedRequestDetail:
        """Requests of the last day that their coordinators traced, newest first."""
        return cast('schemas.TracedRequestDetail', self._connection.call('GET', f"/requests/{path_part(number)}/"))
