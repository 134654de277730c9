"""API keys of a cluster's endpoint: which are admitted, their limits, and their spending."""

from datetime import datetime

from django.db.models import Q, QuerySet

from helixweb.access.scope import people_on
from helixweb.common import key_usage
from helixweb.common.auth import SERVE
from helixweb.common.models import ApiKey, KeyUsage
from helixweb.deployment.models import LatestReport
from helixweb.inventory.models import Coordinator
from runtime.protocol.control import AdmittedKey, CoordinatorReport, KeySpending

NOTHING = KeySpending()


def admitted_keys(cluster_id: int, *, now: datetime) -> tuple[AdmittedKey, ...]:
    """Keys with the scope to serve, of users with a role on the cluster."""
    unexpired = Q(expires_at__isnull=True) | Q(expires_at__gt=now)
    allowed = Q(user__is_superuser=True) | Q(user__in=people_on(cluster_id))
    rows = _keys_of(cluster_id).filter(
        unexpired, allowed, revoked_at__isnull=True, user__is_active=True
    )
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
    """Tokens used today by key id; pass only keys with a budget, as each change is sent again."""
    rows = KeyUsage.objects.filter(key__in=keys, day=now.date()) if keys else ()
    return {row.key_id: row.prompt_tokens + row.output_tokens for row in rows}


def book_spending(
    coordinator: Coordinator,
    report: CoordinatorReport,
    last: LatestReport | None,
    *,
    now: datetime,
) -> None:
    """Add what keys spent since the last report. Lower totals mean that the process restarted."""
    if not report.keys:
        return
    keys = {} if last is None else last.says("keys")
    known = {key: KeySpending.model_validate(spent) for key, spent in keys.items()}
    changed = {key: spent for key, spent in report.keys.items() if spent != known.get(key, NOTHING)}
    # In order: two coordinators that book the same keys at once must not wait for each other.
    for row in _keys_of(coordinator.cluster_id).filter(key__in=changed).only("pk", "key"):
        spent, before = changed[row.key], known.get(row.key, NOTHING)
        if spent.requests < before.requests or spent.prompt_tokens < before.prompt_tokens:
            before = NOTHING
        key_usage.add(
            row.pk,
            now=now,
            requests=spent.requests - before.requests,
            prompt_tokens=spent.prompt_tokens - before.prompt_tokens,
            output_tokens=max(0, spent.output_tokens - before.output_tokens),
        )
        ApiKey.objects.filter(pk=row.pk).update(last_used_at=now)


def _keys_of(cluster_id: int) -> QuerySet[ApiKey]:
    return ApiKey.objects.filter(Q(cluster__isnull=True) | Q(cluster=cluster_id)).order_by("pk")
