"""Serialises computations that take long while their user waits: one at a time for each user.

A web process has one interpreter for the pages of all users. A user who asks for many charts at
once gets them one after the other, and delays others no longer than with one.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from django.http import HttpRequest
from rest_framework import exceptions

# A browser requests at most so many at once; further requests are refused.
MOST_WAITING = 5
WAITS_S = 10.0
# By user: the turn, and the places of those that have it or wait for it.
_TURNS: dict[int, tuple[threading.Lock, threading.Semaphore]] = {}


class NotYourTurn(exceptions.APIException):
    """Another computation of the same user is running."""

    status_code = 429
    default_detail = (
        "Something that you asked for before is still being computed, and only one thing of one "
        "person is at a time; ask again when it has been answered."
    )
    default_code = "not_your_turn"
    wait = 2


@contextmanager
def turn(user_id: int) -> Iterator[None]:
    """Context manager: one computation per user in this process. Raises NotYourTurn."""
    new = threading.Lock(), threading.Semaphore(MOST_WAITING + 1)
    lock, places = _TURNS.setdefault(user_id, new)
    if not places.acquire(blocking=False):
        raise NotYourTurn
    try:
        if not lock.acquire(timeout=WAITS_S):
            raise NotYourTurn
        try:
            yield
        finally:
            lock.release()
    finally:
        places.release()


def in_own_turn(answer: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator for a page's view or a method of a REST view: one call per user at a time."""

    @wraps(answer)
    def answering(*args: Any, **kwargs: Any) -> Any:
        request = args[0] if isinstance(args[0], HttpRequest) else args[1]
        with turn(int(request.user.pk or 0)):
            return answer(*args, **kwargs)

    return answering
