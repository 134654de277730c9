"""Every long task of the site in one list: searches, explanations, simulations, mixes. Reads only.

The rows are in a table each; their union is ordered and cut by the database.
"""

from datetime import datetime
from typing import Any

from django.db.models import CharField, Count, F, IntegerField, Min, Q, QuerySet, Value

from helixweb.common.jobs import KINDS
from helixweb.common.models import Job

COLUMNS = (
    "kind", "id", "shown_by", "status", "attempt", "error", "created_at", "started_at",
    "finished_at", "lease_expires_at",
)  # fmt: skip


def jobs(scope: Any, *, kind: str = "", status: str = "") -> QuerySet[Any, dict[str, Any]]:
    """The newest first, as dictionaries of COLUMNS."""
    wanted = [kind] if kind in KINDS else list(KINDS)
    parts = [_part(scope, name, status) for name in wanted]
    first, *others = parts
    union = first.union(*others, all=True) if others else first
    return union.order_by("-created_at", "-id")


def queues(scope: Any, *, now: datetime) -> list[dict[str, Any]]:
    """How the tasks of each kind stand; `oldest_s`: since when the first in the queue waits."""
    return [_queue(scope, kind, now) for kind in KINDS]


def _part(scope: Any, kind: str, status: str) -> QuerySet[Any, dict[str, Any]]:
    shown_by = KINDS[kind].shown_by
    found = _rows(scope, kind).order_by()
    if status in Job.Status.values:
        found = found.filter(status=status)
    told: QuerySet[Any, dict[str, Any]] = found.annotate(
        kind=Value(kind, output_field=CharField()),
        shown_by=F(shown_by) if shown_by != "pk" else F("id") + Value(0, IntegerField()),
    ).values(*COLUMNS)
    return told


def _rows(scope: Any, kind: str) -> QuerySet[Any]:
    rows: QuerySet[Any] = KINDS[kind].model._default_manager.within(scope)  # type: ignore[attr-defined]
    return rows


def _queue(scope: Any, kind: str, now: datetime) -> dict[str, Any]:
    counted = {
        status: Count("pk", filter=Q(status=status)) for status in ("queued", "running", "failed")
    }
    found = (
        _rows(scope, kind)
        .order_by()
        .aggregate(
            **{f"num_{status}": count for status, count in counted.items()},
            oldest=Min("created_at", filter=Q(status="queued")),
        )
    )
    oldest = found["oldest"]
    return {
        "kind": kind,
        **{status: found[f"num_{status}"] for status in counted},
        "oldest_s": None if oldest is None else (now - oldest).total_seconds(),
    }
