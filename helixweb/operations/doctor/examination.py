"""All looks, in an order in which the first fault explains those below it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.db import connection

from helixweb.operations.doctor import machine, members, reach, services
from helixweb.operations.doctor.findings import Finding


def examine(*, port: int, coordinator_port: int) -> Iterator[Finding]:
    """One after the other; the settings have been read."""
    now = datetime.now(UTC)
    data = Path(settings.DATA_DIR)
    yield from machine.python()
    yield from machine.packages(connection.vendor)
    yield from machine.data_folder(data)
    yield from machine.disk(data)
    yield from services.site_settings()
    yield from services.database()
    yield from services.broker()
    yield from services.worker()
    yield from services.clocks()
    yield from reach.site(settings.HELIX_URL)
    yield from reach.certificate(settings.HELIX_URL, now=now)
    yield from reach.port("127.0.0.1", port, option="--port")
    yield from reach.port("127.0.0.1", coordinator_port, option="--coordinator-port")
    yield from members.coordinators(now)
    yield from members.agents(now)
    yield from members.links(now)
    yield from members.deployments()
