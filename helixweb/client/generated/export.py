"""Export. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from typing import Any, Literal, cast

from helixweb.client.connection import Connection


class Export:
    """Operations under /api/v1/export."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, *, cluster: int | None = None, format: Literal['csv', 'json', 'yaml'] | None = None, kind: Literal['links', 'nodes', 'region_links'] | None = None) -> dict[str, Any]:
        """The inventory as `helixweb.inventory/1`: clusters with all that can be declared, models.

        As JSON or YAML by the header Accept; `text/csv` gives the rows of one kind.
        """
        return cast('dict[str, Any]', self._connection.call('GET', "/export/", query={'cluster': cluster, 'format': format, 'kind': kind}))
