"""Import. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from typing import Any, Literal, cast

from helixweb.client.connection import Connection
from helixweb.client.generated import schemas


class Import:
    """Operations under /api/v1/import."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(self, body: dict[str, Any] | None = None, *, cluster: int | None = None, dry_run: bool | None = None, expect: str | None = None, kind: Literal['links', 'nodes', 'region_links'] | None = None, prune: bool | None = None, idempotency_key: str | None = None) -> schemas.Outcome:
        """Make the site what a `helixweb.inventory/1` document or rows of CSV say; all or nothing.

        A key that is left out stays as it is. Errors name the line, or the path in JSON.
        """
        return cast('schemas.Outcome', self._connection.call('POST', "/import/", query={'cluster': cluster, 'dry_run': dry_run, 'expect': expect, 'kind': kind, 'prune': prune}, body=body, headers={'Idempotency-Key': idempotency_key}))
