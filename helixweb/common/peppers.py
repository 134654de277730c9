"""Hashes of API keys: HMAC-SHA256 under a pepper that is not in the database.

A copy of the database alone does not allow guessing keys. The input is the SHA-256 of the key, so
that keys made before there were peppers could be taken over without knowing them. The pepper is
`HELIX_PEPPER`, else derived from `SECRET_KEY`. To change it, put the old one into
`HELIX_PEPPERS_BEFORE`: keys are hashed again when the site sees them next, and `manage.py apikey
--list` shows which still depend on the old one.
"""

import hashlib
import hmac
from dataclasses import dataclass
from functools import lru_cache

from django.conf import settings

_ID_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Pepper:
    """A secret for hashing keys. `id` identifies it and reveals nothing about it."""

    id: str
    secret: str

    def hash_of(self, secret_sha256: str) -> str:
        """The stored hash of a key, from the key's SHA-256."""
        return hmac.new(self.secret.encode(), secret_sha256.encode(), hashlib.sha256).hexdigest()


def peppers() -> tuple[Pepper, ...]:
    """The one in use, then those from before, as long as they are set."""
    given = settings.HELIX_PEPPER or _derived(settings.SECRET_KEY)
    return tuple(map(_pepper, (given, *settings.HELIX_PEPPERS_BEFORE)))


@lru_cache(maxsize=8)  # asked for each request; there are few
def _pepper(secret: str) -> Pepper:
    return Pepper(hashlib.sha256(b"pepper-id:" + secret.encode()).hexdigest()[:_ID_LENGTH], secret)


@lru_cache(maxsize=8)
def _derived(secret_key: str) -> str:
    return hmac.new(secret_key.encode(), b"helixweb.pepper", hashlib.sha256).hexdigest()
