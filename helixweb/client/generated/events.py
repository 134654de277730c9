"""Events. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from typing import cast

from helixweb.client.connection import Connection
from helixweb.client.generated import schemas


class Events:
    """Operations under /api/v1/events."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, *, topics: str, after: str | None = None, last_event_id: str | None = None, wait: float | None = None) -> schemas.Events:
        """What happens to rows: at once and one by one with `Accept: text/event-stream`, else as a
        list, for which `wait` keeps the answer back until something has happened.
        """
        return cast('schemas.Events', self._connection.call('GET', "/events/", query={'after': after, 'last_event_id': last_event_id, 'topics': topics, 'wait': wait}))
