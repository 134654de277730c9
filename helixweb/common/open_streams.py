"""How many event streams each person has open at this process, and no more than a site allows.

A stream costs little, but none of its own accord ends before an hour: a program that opens one a
second, and forgets them, would take all that a process may have open from everybody else.
"""

import threading
from weakref import WeakSet

from django.conf import settings
from rest_framework import exceptions

COME_AGAIN_S = 10


class TooManyStreams(exceptions.APIException):
    """Others of the same person have to end first."""

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
    """A place that is taken until `end`, or until nobody knows of it any more: the answer to a
    client that has gone before its first byte is dropped without a word."""

    def __init__(self, user_id: int) -> None:
        self.user_id = user_id
        self.is_over = False

    def end(self) -> None:
        """Harmless if it has ended."""
        self.is_over = True


class OpenStreams:
    """Of one process, whose views are in several threads."""

    def __init__(self) -> None:
        self._open: WeakSet[OpenStream] = WeakSet()
        self._lock = threading.RLock()

    def check(self, user_id: int) -> None:
        """That there is room for one more. Raises TooManyStreams."""
        if self.count(user_id) >= settings.HELIX_STREAMS_PER_USER:
            raise TooManyStreams(settings.HELIX_STREAMS_PER_USER)

    def begin(self, user_id: int) -> OpenStream:
        """One more. Raises TooManyStreams."""
        with self._lock:
            self.check(user_id)
            stream = OpenStream(user_id)
            self._open.add(stream)
        return stream

    def count(self, user_id: int) -> int:
        """How many the person has open."""
        with self._lock:  # nobody may add one meanwhile
            return sum(one.user_id == user_id and not one.is_over for one in self._open)


OPEN_STREAMS = OpenStreams()
