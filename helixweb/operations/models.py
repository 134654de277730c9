"""Proof that the queue works: when a worker last executed beat's task."""

from django.db import models


class Pulse(models.Model):
    """One row for each machine whose worker beats; `at` is by the clock of that machine."""

    host = models.CharField(max_length=255, unique=True)
    process_id = models.PositiveIntegerField()
    version = models.CharField(max_length=40)
    at = models.DateTimeField()
