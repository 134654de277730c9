"""Keeps streams, which stay open for hours, from holding a database connection each."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from django.db import close_old_connections, connections

P = ParamSpec("P")
R = TypeVar("R")


def returns_connection(read: Callable[P, R]) -> Callable[P, R]:
    """Decorator: releases this thread's database connection after `read`, unless in a transaction.

    A request's thread keeps the connection that its middleware and view have used until the
    response has ended; a hundred open pages would use up what PostgreSQL allows.
    """
    return _ended_by(close_old_connections, read)


def keeps_connection(read: Callable[P, R]) -> Callable[P, R]:
    """Decorator: leaves this thread's connection open for the next call."""
    return _ended_by(_leave_open, read)


def _leave_open() -> None:
    for connection in connections.all(initialized_only=True):
        connection.close_at = None


def _ended_by(end: Callable[[], None], read: Callable[P, R]) -> Callable[P, R]:
    @wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> R:
        close_old_connections()  # one that broke since
        try:
            return read(*args, **kwargs)
        finally:
            end()

    return reading
