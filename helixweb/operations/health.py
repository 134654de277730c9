"""Whether the parts of a site do what they are there for: for `/readyz`, `up` and `doctor`."""

import os
import shutil
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Literal

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.exceptions import MigrationSchemaMissing

from helixweb.common.migrated import has_pending_migrations
from helixweb.operations.data_folder import LEAST_FREE_BYTES
from helixweb.operations.models import Pulse

PULSE_EVERY_S = 10.0
SILENT_AFTER = timedelta(seconds=3 * PULSE_EVERY_S)
BROKER_TIMEOUT_S = 1.0

State = Literal["ok", "away", "pending", "full"]


def site_health(now: datetime) -> dict[str, State]:
    """Each part by its name. Asks the database and the broker; takes a second at most.

    Pages need `database` and `migrations` alone: without a broker and a worker, and with a full
    disk, they are answered.
    """
    checks: dict[str, State] = {"database": "away", "migrations": "away", "worker": "away"}
    with suppress(DatabaseError, MigrationSchemaMissing):
        connection.ensure_connection()
        pending = has_pending_migrations()
        checks["worker"] = "away" if pending else worker_state(now)
        checks |= {"database": "ok", "migrations": "pending" if pending else "ok"}
    return {**checks, "broker": broker_state(), "disk": disk_state()}


def status_of(checks: dict[str, State]) -> str:
    """The state of what pages need, in a word."""
    if checks["database"] != "ok":
        return "database away"
    return "ok" if checks["migrations"] == "ok" else "migrations pending"


def worker_state(now: datetime) -> State:
    """Whether some worker executed beat's task recently: "ok" or "away"."""
    return "ok" if Pulse.objects.filter(at__gt=now - SILENT_AFTER).exists() else "away"


def disk_state() -> State:
    """Whether the disk of the data folder has room: "ok" or "full"."""
    return "full" if shutil.disk_usage(settings.DATA_DIR).free < LEAST_FREE_BYTES else "ok"


def broker_state() -> State:
    """Whether the broker accepts messages: "ok" or "away"."""
    return "away" if broker_fault() else "ok"


def broker_fault() -> str:
    """Why the broker does not accept messages; empty if it does."""
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
