"""Counts what API keys ask for, and holds them to their rate by REST."""

from datetime import datetime, timedelta

from django.db.models import F, Q

from helixweb.common.models import ApiKey, KeyUsage

# A key without a rate is counted in memory, and written down this often.
WRITTEN_EVERY = timedelta(minutes=1)
_unwritten: dict[int, int] = {}


def count_request(key: ApiKey, *, now: datetime) -> int:
    """Note a request by REST; the seconds to wait if it is one too many, else 0."""
    if key.requests_per_min is not None and not _within_rate(key, key.requests_per_min, now=now):
        return max(1, 60 - now.second)
    count_unwritten(key.pk)
    if key.last_used_at is None or now - key.last_used_at > WRITTEN_EVERY:
        ApiKey.objects.filter(pk=key.pk).update(last_used_at=now)
        add(key.pk, now=now, rest_requests=_unwritten.pop(key.pk, 0))
    return 0


def count_unwritten(key_pk: int) -> None:
    """Note a request of a key without a rate; `count_request` writes it down with the next."""
    _unwritten[key_pk] = _unwritten.get(key_pk, 0) + 1


def add(key_pk: int, *, now: datetime, **counts: int) -> None:
    """Add to what the key did on that day."""
    row, _ = KeyUsage.objects.get_or_create(key_id=key_pk, day=now.date())
    KeyUsage.objects.filter(pk=row.pk).update(
        **{name: F(name) + count for name, count in counts.items()}
    )


def _within_rate(key: ApiKey, limit: int, *, now: datetime) -> bool:
    """Counted in the row, so that all web processes count together."""
    minute = int(now.timestamp()) // 60
    row = ApiKey.objects.filter(pk=key.pk)
    same = row.filter(minute=minute, minute_requests__lt=limit)
    if same.update(minute_requests=F("minute_requests") + 1):
        return True
    is_new = row.filter(~Q(minute=minute))
    return limit > 0 and bool(is_new.update(minute=minute, minute_requests=1))
