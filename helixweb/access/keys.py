"""API keys made and ended by people and programs, with a line in the change log for each."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet, Sum

from helixweb.access import audit
from helixweb.access.roles_of_holders import end_streams
from helixweb.common import api_keys
from helixweb.common.models import ApiKey, KeyUsage

COUNTS = ("rest_requests", "requests", "prompt_tokens", "output_tokens")


def make(
    *, name: str, user: Any, scopes: Iterable[str], cluster: Any, limits: api_keys.Limits
) -> api_keys.NewKey:
    """Raises ValueError, as `create_api_key`."""
    with transaction.atomic():
        new = api_keys.create_api_key(
            name=name, user=user, scopes=scopes, cluster=cluster, limits=limits
        )
        audit.note(
            "apikey",
            str(new.row),
            "added",
            row_id=new.row.pk,
            cluster_id=new.row.cluster_id,
            after=_told(new.row),
        )
    return new


def end(key: ApiKey) -> bool:
    """Revoke it; False if that was done before."""
    with transaction.atomic():
        if not api_keys.revoke(key):
            return False
        audit.note(
            "apikey",
            str(key),
            "removed",
            row_id=key.pk,
            cluster_id=key.cluster_id,
            before=_told(key),
            text="revoked",
        )
        end_streams([key.user_id])
    return True


def with_usage(rows: QuerySet[ApiKey], *, now: datetime) -> list[ApiKey]:
    """With their owners, clusters and counts, for tables."""
    return used_by(rows.select_related("cluster", "user"), now=now)


def used_by(rows: Iterable[ApiKey], *, now: datetime) -> list[ApiKey]:
    """Each with `used` (since it was made) and `used_today`, as dictionaries of counts."""
    keys = list(rows)
    usage = KeyUsage.objects.filter(key__in=keys)
    sums = {name: Sum(name) for name in COUNTS}
    ever: dict[int, Any] = {
        row["key"]: row for row in usage.values("key").annotate(**sums).order_by()
    }
    today: dict[int, Any] = {
        row["key"]: row for row in usage.filter(day=now.date()).values("key", *COUNTS)
    }
    for key in keys:
        key.used = {name: ever.get(key.pk, {}).get(name, 0) for name in COUNTS}  # type: ignore[attr-defined]
        key.used_today = {name: today.get(key.pk, {}).get(name, 0) for name in COUNTS}  # type: ignore[attr-defined]
    return keys


def _told(key: ApiKey) -> dict[str, Any]:
    return {
        "owner": key.user.get_username(),
        "scopes": key.scopes,
        "networks": key.networks,
        "expires_at": key.expires_at.isoformat() if key.expires_at else None,
        "requests_per_min": key.requests_per_min,
        "tokens_per_min": key.tokens_per_min,
        "tokens_per_day": key.tokens_per_day,
    }
