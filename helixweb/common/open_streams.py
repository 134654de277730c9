"""How many event streams each user has open at this process, and no more than a site allows.

A stream costs little, but stays for up to an hour: a program that opens one a second, and forgets
them, would take all that a process may have open from other users.
"""

import threading
from weakref import WeakSet

from django.conf import settings
from rest_framework import exceptions

COME_AGAIN_S = 10


class TooManyStreams(exceptions.APIException):
    """Others of the same user have to end first."""

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
    """A place that is taken until `end`, or until the stream is garbage: the answer to a client
    that has gone before its first byte is dropped without being closed."""

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
    """How many the user has open."""
    with _LOCK:  # no other thread may add one meanwhile
        return sum(one.user_id == user_id for one in _OPEN)
