"""Answers that are kept for a second request. See `idempotency.py`, their only writer."""

from django.db import models


class KeptAnswer(models.Model):
    """The answer to one Idempotency-Key of one actor; the key is stored as a hash.

    `answer` is encrypted: it may hold a secret that is shown once.
    """

    actor = models.CharField(max_length=80)
    key_hash = models.CharField(max_length=64)
    request_hash = models.CharField(max_length=64)
    answer = models.BinaryField(default=b"")
    created_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["actor", "key_hash"], name="kept_answer_one_of_key")
        ]
