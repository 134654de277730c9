"""Which API keys open a cluster's endpoint, and what each is held to."""

from datetime import datetime

from django.db.models import Q

from helixweb.access.rights import people_on
from helixweb.common.auth import SERVE
from helixweb.common.models import ApiKey, KeyUsage
from runtime.protocol.control import AdmittedKey


def admitted_keys(cluster_id: int, *, now: datetime) -> tuple[AdmittedKey, ...]:
    """Those for asking models, of people who have a role on the cluster."""
    unexpired = Q(expires_at__isnull=True) | Q(expires_at__gt=now)
    there = Q(cluster__isnull=True) | Q(cluster=cluster_id)
    allowed = Q(user__is_superuser=True) | Q(user__in=people_on(cluster_id))
    rows = ApiKey.objects.filter(
        unexpired, there, allowed, revoked_at__isnull=True, user__is_active=True
    ).order_by("pk")
    keys = [row for row in rows if SERVE in row.scopes]
    used = _used_today([row.pk for row in keys if row.tokens_per_day is not None], now=now)
    return tuple(
        AdmittedKey(
            key=row.key,
            hash=row.secret_hash,
            networks=tuple(row.networks),
            expires_at=row.expires_at.timestamp() if row.expires_at else None,
            requests_per_min=row.requests_per_min,
            tokens_per_min=row.tokens_per_min,
            tokens_per_day=row.tokens_per_day,
            tokens_today=used.get(row.pk, 0),
        )
        for row in keys
    )


def _used_today(keys: list[int], *, now: datetime) -> dict[int, int]:
    """Only of keys with a budget: for others nothing is sent anew when they are used."""
    rows = KeyUsage.objects.filter(key__in=keys, day=now.date()) if keys else ()
    return {row.key_id: row.prompt_tokens + row.output_tokens for row in rows}
