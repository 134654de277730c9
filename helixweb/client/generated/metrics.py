"""Metrics. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from typing import cast

from helixweb.client.connection import Connection
from helixweb.client.generated import schemas


class Metrics:
    """Operations under /api/v1/metrics."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def latest(self, *, cluster: int) -> schemas.Sample:
        """The newest sample of a cluster, with every node; its `at` says how old it is."""
        return cast('schemas.Sample', self._connection.call('GET', "/metrics/latest/", query={'cluster': cluster}))
