"""Counts the REST requests of API keys, and enforces their rate limits."""

import threading
from collections import Counter
from datetime import datetime, timedelta

from django.db import Error
from django.db.models import Case, F, Q, Value, When

from helixweb.common.models import ApiKey, KeyUsage

# A request of a key is counted in memory; counts are written to the database this often.
WRITTEN_EVERY = timedelta(minutes=1)
_lock = threading.Lock()
_unwritten: Counter[int] = Counter()  # requests by primary key of the API key; under `_lock`


def count_request(key: ApiKey, *, now: datetime) -> int:
    """Count a REST request; return 0, or the seconds to wait if it exceeds the key's rate."""
    if key.requests_per_min is not None and not _within_rate(key, key.requests_per_min, now=now):
        return max(1, 60 - now.second)
    count_unwritten(key.pk)
    if key.last_used_at is None or now - key.last_used_at > WRITTEN_EVERY:
        ApiKey.objects.filter(pk=key.pk).update(last_used_at=now)
        write_all(now=now)
    return 0


def count_unwritten(key_pk: int) -> None:
    """Count a request in memory; `write_all` writes it down."""
    with _lock:
        _unwritten[key_pk] += 1


def write_all(*, now: datetime) -> None:
    """Write down what this process has counted; keys that were deleted meanwhile are forgotten.

    Raises django.db.Error; what could not be written stays counted.
    """
    with _lock:
        counted = _unwritten.copy()
        _unwritten.clear()
    try:
        existing = ApiKey.objects.filter(pk__in=list(counted)).values_list("pk", flat=True)
        counted = Counter({pk: counted[pk] for pk in existing})
        for key_pk in existing:
            add(key_pk, now=now, rest_requests=counted[key_pk])
            del counted[key_pk]
    except Error:
        with _lock:
            _unwritten.update(counted)
        raise


def add(key_pk: int, *, now: datetime, **counts: int) -> None:
    """Add `counts` to the usage of the key on that day."""
    row, _ = KeyUsage.objects.get_or_create(key_id=key_pk, day=now.date())
    KeyUsage.objects.filter(pk=row.pk).update(
        **{name: F(name) + count for name, count in counts.items()}
    )


def _within_rate(key: ApiKey, limit: int, *, now: datetime) -> bool:
    """Count in the row, which all web processes share, in one statement, so that requests that
    come at once in a new minute are all counted."""
    minute = int(now.timestamp()) // 60
    below = ~Q(minute=minute) | Q(minute_requests__lt=limit)
    requests = Case(When(minute=minute, then=F("minute_requests") + 1), default=Value(1))
    row = ApiKey.objects.filter(below, pk=key.pk)
    return limit > 0 and bool(row.update(minute=minute, minute_requests=requests))
