"""What takes long to compute while somebody waits: of one person, one at a time.

A web process has one interpreter for everybody's pages. Whoever asks for many charts at once gets
them one after the other, and keeps others from theirs no longer than with one.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse
from rest_framework import exceptions

# As many as a browser asks for at once wait for each other; more are sent away.
MOST_WAITING = 5
WAITS_S = 10.0


class NotYourTurn(exceptions.APIException):
    """Something else of the same person is being computed."""

    status_code = 429
    default_detail = (
        "Something that you asked for before is still being computed, and only one thing of one "
        "person is at a time; ask again when it has been answered."
    )
    default_code = "not_your_turn"
    wait = 2


class OwnTurns:
    """Of one process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asked: Counter[int] = Counter()
        self._busy: set[int] = set()

    @contextmanager
    def turn(self, user_id: int) -> Iterator[None]:
        """Within, nothing else of the person's has its turn. Raises NotYourTurn."""
        with self._changed:
            if self._asked[user_id] > MOST_WAITING:
                raise NotYourTurn
            self._asked[user_id] += 1
            self._changed.notify_all()
        try:
            with self._its_turn(user_id):
                yield
        finally:
            with self._changed:
                self._asked[user_id] -= 1
                if not self._asked[user_id]:
                    del self._asked[user_id]

    @contextmanager
    def _its_turn(self, user_id: int) -> Iterator[None]:
        with self._changed:
            if not self._changed.wait_for(lambda: user_id not in self._busy, WAITS_S):
                raise NotYourTurn
            self._busy.add(user_id)
        try:
            yield
        finally:
            with self._changed:
                self._busy.discard(user_id)
                self._changed.notify_all()


OWN_TURNS = OwnTurns()


def in_own_turn(answer: Callable[..., Any]) -> Callable[..., Any]:
    """For a method of a REST view."""

    @wraps(answer)
    def answering(view: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        with OWN_TURNS.turn(int(request.user.pk or 0)):
            return answer(view, request, *args, **kwargs)

    return answering


def page_in_own_turn(answer: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """For the view of a page."""

    @wraps(answer)
    def answering(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            with OWN_TURNS.turn(int(request.user.pk or 0)):
                return answer(request, *args, **kwargs)
        except NotYourTurn as error:
            return HttpResponse(
                str(error.detail),
                status=error.status_code,
                content_type="text/plain; charset=utf-8",
                headers={"Retry-After": str(error.wait)},
            )

    return answering
