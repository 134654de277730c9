"""Answers that are kept for who asks a second time. See `idempotency.py`, their only writer."""

from django.db import models


class KeptAnswer(models.Model):
    """What one Idempotency-Key of one actor was used for; of the key there is only a hash.

    While the first request is at work, `claim` is its own until `claimed_until`, and `answer` is
    empty. `answer` is encrypted: it may hold a secret that is shown once.
    """

    actor = models.CharField(max_length=80)
    key_hash = models.CharField(max_length=64)
    request_hash = models.CharField(max_length=64)
    claim = models.UUIDField()
    claimed_until = models.DateTimeField()
    answer = models.BinaryField(default=b"")
    created_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["actor", "key_hash"], name="kept_answer_one_of_key")
        ]
