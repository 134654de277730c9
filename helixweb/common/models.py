"""Rows that know no product noun: the event outbox, API keys, login links, jobs."""

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar

from django.conf import settings
from django.db import models


class Event(models.Model):
    """One change of state, written in the transaction that makes it; `id` is the SSE id."""

    topic = models.CharField(max_length=80, db_index=True)
    type = models.CharField(max_length=40)
    data = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)


class ApiKey(models.Model):
    """`hlx_<key>.<secret>`; only a keyed hash of the whole is kept (see `peppers.py`).

    It may do what its owner may, within `scopes` and, if it has one, on `cluster` alone; from
    `networks` only, unless there are none. Null limits are none. `minute` is the one, in Unix
    minutes, in which `minute_requests` came by REST.
    """

    name = models.CharField(max_length=80)
    key = models.CharField(max_length=16, unique=True)
    secret_hash = models.CharField(max_length=64, unique=True)
    pepper = models.CharField(max_length=8, blank=True)
    scopes = models.JSONField(default=list)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    cluster = models.ForeignKey(
        "inventory.Cluster", null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    networks = models.JSONField(default=list, blank=True)
    requests_per_min = models.PositiveIntegerField(null=True, blank=True)
    tokens_per_min = models.PositiveIntegerField(null=True, blank=True)
    tokens_per_day = models.PositiveBigIntegerField(null=True, blank=True)
    minute = models.PositiveBigIntegerField(default=0)
    minute_requests = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    secret = ""  # the whole key, of a row that was created just now

    def __str__(self) -> str:
        return f"{self.name} (hlx_{self.key}…)"


class KeyUsage(models.Model):
    """Usage of one key on one day (UTC): REST requests, and requests to models."""

    key = models.ForeignKey(ApiKey, on_delete=models.CASCADE, related_name="usage")
    day = models.DateField()
    rest_requests = models.PositiveBigIntegerField(default=0)
    requests = models.PositiveBigIntegerField(default=0)
    prompt_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)

    class Meta:
        ordering = ["-day"]
        constraints = [models.UniqueConstraint(fields=["key", "day"], name="key_usage_one_a_day")]

    def __str__(self) -> str:
        return f"{self.key} on {self.day}"


class FailedLogins(models.Model):
    """Number of failed log-ins of one address, or one user name, since `since`."""

    counted = models.CharField(max_length=80, unique=True)
    failures = models.PositiveIntegerField(default=0)
    since = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"{self.failures} since {self.since}"


class SessionOfUser(models.Model):
    """An active session of a user, so that users can list and end their own."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    session_key = models.CharField(max_length=40, unique=True)
    address = models.CharField(max_length=64, blank=True)
    browser = models.CharField(max_length=200, blank=True)
    began_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.user} from {self.address}"


class LoginLink(models.Model):
    """A one-time link that logs its user in; only the SHA-256 of its token is stored."""

    token_hash = models.CharField(max_length=64, unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)


class Job(models.Model):
    """A long job as a row: claimed under a lease, every write fenced by the attempt number.

    Only `jobs.py` and `leases.py` change these columns.
    """

    # What its events are called, and the columns they name besides the status.
    event_type: ClassVar[str] = ""
    event_columns: ClassVar[Mapping[str, str]] = {}

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
    def topic(self) -> str:
        """The event topic of the pages that show it."""
        return f"{self.event_type}:{self.pk}"

    def note_end(self, status: str) -> None:
        """Called in the transaction that ends it; kinds that write more then override it."""

    @property
    def is_finished(self) -> bool:
        return self.status in FINISHED

    @property
    def duration_s(self) -> float | None:
        """Seconds from the first start to the end; None while it runs."""
        start: datetime | None = self.started_at
        end: datetime | None = self.finished_at
        return (end - start).total_seconds() if start and end else None


FINISHED = frozenset({Job.Status.SUCCEEDED, Job.Status.FAILED, Job.Status.CANCELLED})
