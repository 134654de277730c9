"""Who acts: the person behind the request that is being answered, for the change log.

Services are called by pages, by the REST API and by processes alike and know no request; passing
the user through all of them would put a parameter into each signature that one function reads.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest

_REQUEST: ContextVar[HttpRequest | None] = ContextVar("helixweb_request", default=None)


@contextmanager
def acting(request: HttpRequest) -> Iterator[None]:
    """Within, `current_user` is whoever `request` turns out to be from."""
    token = _REQUEST.set(request)
    try:
        yield
    finally:
        _REQUEST.reset(token)


def current_user() -> Any | None:
    """The person logged in, by session or by API key; None: a process, a task, or nobody.

    Read when it is asked for: the REST framework knows the owner of a key only within the view.
    """
    request = _REQUEST.get()
    user = getattr(request, "user", None)
    return user if isinstance(user, AbstractBaseUser) and user.is_authenticated else None
