"""Books what API keys spent at a coordinator, from its totals and those of its last report."""

from datetime import datetime

from django.db.models import Q

from helixweb.common import key_usage
from helixweb.common.models import ApiKey
from helixweb.deployment.models import LatestReport
from helixweb.inventory.models import Coordinator
from runtime.protocol.control import CoordinatorReport, KeySpending

NOTHING = KeySpending()


def book_spending(coordinator: Coordinator, report: CoordinatorReport, *, now: datetime) -> None:
    """Call it before the last report is replaced. Totals that fell are a new process's."""
    if not report.keys:
        return
    known = _told_before(coordinator)
    there = Q(cluster__isnull=True) | Q(cluster=coordinator.cluster_id)
    news = {key: told for key, told in report.keys.items() if told != known.get(key, NOTHING)}
    # In order: two coordinators that book the same keys at once must not wait for each other.
    for row in ApiKey.objects.filter(there, key__in=news).only("pk", "key").order_by("pk"):
        told, before = news[row.key], known.get(row.key, NOTHING)
        if told.requests < before.requests or told.prompt_tokens < before.prompt_tokens:
            before = NOTHING
        key_usage.add(
            row.pk,
            now=now,
            requests=told.requests - before.requests,
            prompt_tokens=told.prompt_tokens - before.prompt_tokens,
            output_tokens=max(0, told.output_tokens - before.output_tokens),
        )
        ApiKey.objects.filter(pk=row.pk).update(last_used_at=now)


def _told_before(coordinator: Coordinator) -> dict[str, KeySpending]:
    reports = LatestReport.objects.filter(coordinator=coordinator)
    keys = reports.values_list("report__keys", flat=True).first()
    return {key: KeySpending.model_validate(told) for key, told in (keys or {}).items()}
