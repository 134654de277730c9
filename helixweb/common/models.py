"""Rows that know no product noun: the event outbox, API keys, login links, leased tasks."""

from datetime import datetime

from django.conf import settings
from django.db import models


class Event(models.Model):
    """One change of state, written in the transaction that makes it; `id` is the SSE id."""

    topic = models.CharField(max_length=80, db_index=True)
    type = models.CharField(max_length=40)
    data = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)


class ApiKey(models.Model):
    """`hlx_<key>.<secret>`; only the sha256 of the whole is kept."""

    name = models.CharField(max_length=80)
    key = models.CharField(max_length=16, unique=True)
    secret_hash = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField(default=list)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)


class LoginLink(models.Model):
    """A one-time link that logs its user in; only the sha256 of its token is kept."""

    token_hash = models.CharField(max_length=64, unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)


class LeasedTask(models.Model):
    """A long task as a row: claimed under a lease, every write fenced by the attempt number.

    See `leases.py`, the only place that changes these columns.
    """

    class Status(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        SUCCEEDED = "succeeded"
        FAILED = "failed"
        CANCELLED = "cancelled"

    status = models.CharField(
        max_length=12, choices=Status.choices, default=Status.QUEUED, db_index=True
    )
    attempt = models.PositiveIntegerField(default=0)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    cancel_requested = models.BooleanField(default=False)
    error = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True

    @property
    def is_finished(self) -> bool:
        return self.status in FINISHED

    @property
    def duration_s(self) -> float | None:
        """Seconds from the first start to the end; None while it runs."""
        start: datetime | None = self.started_at
        end: datetime | None = self.finished_at
        return (end - start).total_seconds() if start and end else None


FINISHED = frozenset(
    {LeasedTask.Status.SUCCEEDED, LeasedTask.Status.FAILED, LeasedTask.Status.CANCELLED}
)
