"""AlertChannels. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part, with_commas
from helixweb.client.generated import schemas


class AlertChannelsFilters(TypedDict, total=False):
    """Query parameters of GET /alert-channels/."""

    cluster: int
    cluster__in: list[int]
    enabled: bool
    fields: list[Literal['addresses', 'alive_every_s', 'cluster', 'created_at', 'disabled_why', 'enabled', 'failures', 'id', 'least_severity', 'name', 'secret', 'send_resolved', 'url', 'way']]
    limit: int
    offset: int
    ordering: list[Literal['id', '-id', 'cluster', '-cluster', 'name', '-name', 'way', '-way', 'url', '-url', 'enabled', '-enabled', 'send_resolved', '-send_resolved', 'least_severity', '-least_severity', 'alive_every_s', '-alive_every_s', 'failures', '-failures', 'disabled_why', '-disabled_why', 'created_at', '-created_at']]
    q: str
    way: Literal['email', 'webhook']
    way__in: list[str]


class AlertChannels:
    """Operations under /api/v1/alert-channels."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[AlertChannelsFilters]) -> Page[schemas.Channel]:
        """Rows that can be made, changed and deleted as well."""
        answer = self._connection.call("GET", "/alert-channels/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'ordering', 'way__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[AlertChannelsFilters]) -> Iterator[schemas.Channel]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/alert-channels/", query=with_commas(dict(filters), 'cluster__in', 'fields', 'ordering', 'way__in'))

    def create(self, body: schemas.ChannelRequest, *, idempotency_key: str | None = None) -> schemas.Channel:
        """Rows that can be made, changed and deleted as well."""
        return cast('schemas.Channel', self._connection.call('POST', "/alert-channels/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def get(self, id: int, *, fields: list[Literal['addresses', 'alive_every_s', 'cluster', 'created_at', 'disabled_why', 'enabled', 'failures', 'id', 'least_severity', 'name', 'secret', 'send_resolved', 'url', 'way']] | None = None) -> schemas.Channel:
        """Rows that can be made, changed and deleted as well."""
        return cast('schemas.Channel', self._connection.call('GET', f"/alert-channels/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def get_tagged(self, id: int) -> Tagged[schemas.Channel]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/alert-channels/{path_part(id)}/")

    def update(self, id: int, body: schemas.PatchedChannelRequest | None = None, *, if_match: str | None = None) -> schemas.Channel:
        """Rows that can be made, changed and deleted as well."""
        return cast('schemas.Channel', self._connection.call('PATCH', f"/alert-channels/{path_part(id)}/", body=body, headers={'If-Match': if_match}))

    def delete(self, id: int, *, if_match: str | None = None) -> None:
        """Rows that can be made, changed and deleted as well."""
        self._connection.call('DELETE', f"/alert-channels/{path_part(id)}/", headers={'If-Match': if_match})

    def new_secret(self, id: int, *, idempotency_key: str | None = None) -> schemas.Secret:
        """Another secret for its signatures, shown this once."""
        return cast('schemas.Secret', self._connection.call('POST', f"/alert-channels/{path_part(id)}/new-secret/", headers={'Idempotency-Key': idempotency_key}))

    def test(self, id: int, *, idempotency_key: str | None = None) -> schemas.Delivery:
        """Send something, to see whether it arrives; its delivery tells."""
        return cast('schemas.Delivery', self._connection.call('POST', f"/alert-channels/{path_part(id)}/test/", headers={'Idempotency-Key': idempotency_key}))

    def batch(self, body: schemas.ChannelBatchRequest | None = None, *, idempotency_key: str | None = None) -> schemas.ChannelBatchDone:
        """Delete, change and make many rows at once: all of it or, if any is refused, nothing."""
        return cast('schemas.ChannelBatchDone', self._connection.call('POST', "/alert-channels/batch/", body=body, headers={'Idempotency-Key': idempotency_key}))
