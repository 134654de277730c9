"""Me. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from typing import cast

from helixweb.client.connection import Connection
from helixweb.client.generated import schemas


class Me:
    """Operations under /api/v1/me."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self) -> schemas.Me:
        """Who asks, and what they may do."""
        return cast('schemas.Me', self._connection.call('GET', "/me/"))
