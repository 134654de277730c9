"""Counts and limits the event streams that each user has open at this process.

A stream costs little, but is open for up to an hour: a program that opens one a second without
closing any would use up the limit of a process for all users.
"""

import threading
from weakref import WeakSet

from django.conf import settings
from rest_framework import exceptions

COME_AGAIN_S = 10


class TooManyStreams(exceptions.APIException):
    """The user has too many open streams."""

    status_code = 429
    default_code = "too_many_streams"
    wait = COME_AGAIN_S

    def __init__(self, most: int) -> None:
        super().__init__(
            f"One person may have {most} event streams and waits for events open here, by pages "
            "and by API keys, and so many of yours are. End some, or let an administrator raise "
            "HELIX_STREAMS_PER_USER."
        )


class OpenStream:
    """A counted stream, until `end` or garbage collection: the answer to a client that disconnects
    before its first byte is dropped without being closed."""

    def __init__(self, user_id: int) -> None:
        self.user_id = user_id

    def end(self) -> None:
        """Harmless if it has ended."""
        with _LOCK:
            _OPEN.discard(self)


# The open streams of this process; a lock, since views run in several threads.
_OPEN: WeakSet[OpenStream] = WeakSet()
_LOCK = threading.RLock()


def check(user_id: int) -> None:
    """Raises TooManyStreams if the user may open no more."""
    if count(user_id) >= settings.HELIX_STREAMS_PER_USER:
        raise TooManyStreams(settings.HELIX_STREAMS_PER_USER)


def begin(user_id: int) -> OpenStream:
    """One more. Raises TooManyStreams."""
    with _LOCK:
        check(user_id)
        stream = OpenStream(user_id)
        _OPEN.add(stream)
    return stream


def count(user_id: int) -> int:
    """Number of streams that the user has open."""
    with _LOCK:  # no other thread may add one meanwhile
        return sum(one.user_id == user_id for one in _OPEN)
