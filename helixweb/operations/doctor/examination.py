"""All checks, in an order in which the first fault explains those after it."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, connection

from helixweb.operations.doctor import machine, members, reach, services
from helixweb.operations.doctor.findings import Finding


def examine(*, port: int, coordinator_port: int) -> Iterator[Finding]:
    """One after the other; the settings have been read."""
    now = datetime.now(UTC)
    data = Path(settings.DATA_DIR)
    for look in (
        machine.python,
        partial(machine.packages, connection.vendor),
        partial(machine.data_folder, data),
        partial(machine.disk, data),
        services.site_settings,
        services.database,
        services.broker,
        services.worker,
        services.clocks,
        partial(reach.site, settings.HELIX_URL),
        partial(reach.certificate, settings.HELIX_URL, now=now),
        partial(reach.port, "127.0.0.1", port, option="--port"),
        partial(reach.port, "127.0.0.1", coordinator_port, option="--coordinator-port"),
        partial(members.coordinators, now),
        partial(members.agents, now),
        partial(members.links, now),
        members.deployments,
    ):
        with contextlib.suppress(DatabaseError):  # `services.database` reports it
            yield from look()
