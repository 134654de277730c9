"""Whether the parts of a site do what they are there for: for `/readyz`, `up` and `doctor`."""

import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.exceptions import MigrationSchemaMissing

from helixweb.common.migrated import has_pending_migrations
from helixweb.operations.models import Pulse

PULSE_EVERY_S = 10.0
SILENT_AFTER = timedelta(seconds=3 * PULSE_EVERY_S)
BROKER_TIMEOUT_S = 1.0

State = Literal["ok", "away", "pending"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What pages need (`database`, `migrations`) and what plans and deployments need beside it."""

    database: State
    migrations: State
    broker: State
    worker: State

    @property
    def is_ready(self) -> bool:
        """Pages can be answered: without a broker and a worker they can, so a load balancer must
        not take all web processes away because of those."""
        return self.database == "ok" and self.migrations == "ok"

    @property
    def status(self) -> str:
        """In a word, as `/readyz` has always said it."""
        if self.database != "ok":
            return "database away"
        return "ok" if self.migrations == "ok" else "migrations pending"

    def checks(self) -> dict[str, State]:
        """Each part by its name."""
        return {
            "database": self.database,
            "migrations": self.migrations,
            "broker": self.broker,
            "worker": self.worker,
        }


def site_health(now: datetime) -> Health:
    """Asks the database and the broker; a second at most if they are there."""
    try:
        connection.ensure_connection()
        pending = has_pending_migrations()
        worker: State = "away" if pending else worker_state(now)
    except (DatabaseError, MigrationSchemaMissing):
        return Health(database="away", migrations="away", broker=broker_state(), worker="away")
    return Health(
        database="ok",
        migrations="pending" if pending else "ok",
        broker=broker_state(),
        worker=worker,
    )


def worker_state(now: datetime) -> State:
    """Some worker did what beat told it to lately."""
    return "ok" if Pulse.objects.filter(at__gt=now - SILENT_AFTER).exists() else "away"


def broker_state() -> State:
    """Messages can be left with it."""
    return "away" if broker_fault() else "ok"


def broker_fault() -> str:
    """Why messages cannot be left with the broker; empty: they can."""
    if not settings.REDIS_URL:
        folder = settings.CELERY_BROKER_TRANSPORT_OPTIONS["data_folder_out"]
        return "" if os.access(folder, os.W_OK | os.X_OK) else f"{folder} cannot be written to"
    from redis import Redis, RedisError  # a tenth of the start of a process, for sites with Redis

    try:
        with Redis.from_url(
            settings.REDIS_URL,
            socket_connect_timeout=BROKER_TIMEOUT_S,
            socket_timeout=BROKER_TIMEOUT_S,
        ) as redis:
            redis.ping()
    except (RedisError, OSError) as error:
        return str(error)
    return ""
