"""Writes the change log: who did what to which row, and its values around it."""

import hmac
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import models

from helixweb.access.audit import mark_told
from helixweb.common.actor import by_whom
from helixweb.inventory.models import Change, Cluster

KEPT_FOR = timedelta(days=365)
# Columns that change by themselves, are secret, or mean nothing to users.
_UNTOLD = frozenset(
    {
        "id", "created_at", "recorded_at", "joined_at", "last_seen_at", "silence_announced",
        "credential_hash", "data_public_key", "sealed_secret", "measured_under", "reach",
    }
)  # fmt: skip
# URLs of webhooks often hold a key; the log has a mark of them, which shows whether they changed.
_MARKED = frozenset({"url"})

Values = Mapping[str, Any]


def values_of(row: models.Model) -> Values:
    """A row's columns for the log, as JSON values; foreign keys as ids."""
    logged = [field for field in row._meta.concrete_fields if field.attname not in _UNTOLD]
    values = {field.attname: _plain(getattr(row, field.attname)) for field in logged}
    return values | {name: _mark(values[name]) for name in _MARKED & values.keys()}


def record(row: models.Model, action: Change.Action, **what: Any) -> None:
    """Store one line, made by `change_of`, in the caller's transaction."""
    record_all([change_of(row, action, **what)])


def record_all(lines: Iterable[Change | None]) -> list[Change]:
    """Store lines of rows that were changed together, without None; returns those stored."""
    written = [line for line in lines if line is not None]
    Change.objects.bulk_create(written, batch_size=500)
    return written


def change_of(
    row: models.Model,
    action: Change.Action,
    *,
    before: Values | None = None,
    after: Values | None = None,
    text: str = "",
) -> Change | None:
    """A line about `row`, not stored yet, with what differs of two sets of values; None: nothing
    does."""
    if before is not None and after is not None:
        keys = [key for key in after if before.get(key) != after[key]]
        if not keys:
            return None
        before, after = {key: before.get(key) for key in keys}, {key: after[key] for key in keys}
    mark_told()
    is_cluster = isinstance(row, Cluster)
    # No line can refer to a cluster that is being deleted.
    gone = is_cluster and action == Change.Action.REMOVED
    return Change(
        cluster_id=None if gone else row.pk if is_cluster else getattr(row, "cluster_id", None),
        cluster_name=str(row) if gone else "",
        kind=row._meta.model_name or "",
        row_id=row.pk,
        name=str(row)[:200],
        action=action,
        text=text,
        before=before,
        after=after,
        **by_whom(),
    )


def outlive(cluster: Cluster) -> None:
    """Store a cluster's name in its lines before it is deleted."""
    Change.unscoped.filter(cluster=cluster).update(cluster_name=cluster.name)


def prune_changes(now: datetime) -> None:
    """Forget what happened more than a year ago."""
    Change.unscoped.filter(at__lt=now - KEPT_FOR).delete()


def _mark(secret: str) -> str:
    """Equal for equal ones; says nothing of them."""
    digest = hmac.digest(settings.SECRET_KEY.encode(), secret.encode(), "sha256")
    return f"…{digest.hex()[:8]}" if secret else ""


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, uuid.UUID) else value
