"""Slows down whoever guesses passwords: failures are counted by address and by user name.

Each web process counts for itself, in memory. One-time links work all the same: they cannot be
guessed.
"""

from typing import Any

from django.core.cache import cache
from rest_framework.throttling import BaseThrottle

from helixweb.common.auth import sha256_hex

WINDOW_S = 300
FAILURES_OF_ADDRESS = 20
# More than one address may have: whoever guesses must not lock out whom he guesses at too easily.
FAILURES_OF_NAME = 60


def must_wait(request: Any, username: str) -> bool:
    """Whether the address or the name has failed too often of late."""
    return any(cache.get(key, 0) >= most for key, most in _counters(request, username))


def note_failure(request: Any, username: str) -> None:
    """Count one, from the first for `WINDOW_S`."""
    for key, _ in _counters(request, username):
        cache.add(key, 0, WINDOW_S)
        try:
            cache.incr(key)
        except ValueError:  # it ran out just now
            cache.set(key, 1, WINDOW_S)


def _counters(request: Any, username: str) -> list[tuple[str, int]]:
    address = BaseThrottle().get_ident(request)
    return [
        (f"failed-login:address:{address}", FAILURES_OF_ADDRESS),
        (f"failed-login:name:{sha256_hex(username.lower())}", FAILURES_OF_NAME),
    ]
