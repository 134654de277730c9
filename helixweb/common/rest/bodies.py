"""Limits the size of request bodies, by their headers before they are read.

Django's handler spools a body to disk before any view authenticates the sender. Here a body has at
most `MOST_BYTES`; without a valid credential or session for that address at most
`MOST_UNKNOWN_BYTES`, which are held in memory. A body without a length is counted as it is read.
"""

import logging
from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.base import SessionBase
from django.core.handlers.asgi import ASGIRequest
from django.db import close_old_connections
from django.http import HttpResponse
from django.urls import Resolver404, resolve
from django.utils.module_loading import import_string
from rest_framework import exceptions

from helixweb.common.problems import TooLarge, plain_answer

MOST_BYTES = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
# A process that registers proves itself by its message, which is no larger; so do log-in forms.
MOST_UNKNOWN_BYTES = 1_000_000

Scope = dict[str, Any]
logger = logging.getLogger(__name__)


class BoundedBody:
    """An ASGI `receive` that gives no more than its request may send.

    After more than that, the reader gets a disconnect, and `refusal` is the response to send.
    `is_known` checks whether the sender is authenticated; it is called at most once.
    """

    refusal: HttpResponse | None = None

    def __init__(
        self, scope: Scope, receive: Callable[[], Any], *, is_known: Callable[[], Awaitable[bool]]
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._is_known = is_known
        self._most_bytes = min(MOST_BYTES, MOST_UNKNOWN_BYTES)
        self._bytes = 0

    async def check_length(self) -> None:
        """Refuse a body whose Content-Length is too large."""
        stated = dict(self._scope["headers"]).get(b"content-length", b"")
        if stated.isdigit():
            await self._admit(int(stated[:20]))

    async def __call__(self) -> Any:
        """The next message."""
        message = await self._receive()
        self._bytes += len(message.get("body", b""))
        await self._admit(self._bytes)
        return message if self.refusal is None else {"type": "http.disconnect"}

    async def _admit(self, n_bytes: int) -> None:
        if n_bytes > MOST_BYTES:
            self.refusal = _refusal(self._scope, TooLarge())
        elif n_bytes > self._most_bytes:
            if await self._is_known():
                self._most_bytes = MOST_BYTES
            else:
                self.refusal = _refusal(self._scope, _unknown(self._scope))


def is_known(scope: Scope) -> bool:
    """True if the headers have a credential that the view at the path takes, or a session of a
    user who is logged in. Counts no request."""
    close_old_connections()
    request = ASGIRequest(scope, BytesIO())
    try:
        view: Any = resolve(request.path_info).func
    except Resolver404:
        return False
    kinds = getattr(getattr(view, "cls", None), "authentication_classes", None)
    if any(kind().knows(request) for kind in kinds or () if hasattr(kind, "knows")):
        return True
    cookie = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
    if cookie is None or kinds == []:
        return False
    store: type[SessionBase] = import_string(f"{settings.SESSION_ENGINE}.SessionStore")
    request.session = store(cookie)
    return get_user(request).is_authenticated


def _unknown(scope: Scope) -> exceptions.APIException:
    headers = dict(scope["headers"])
    if b"authorization" in headers:
        refused = exceptions.AuthenticationFailed(
            "This credential is not known here, so a body of this length is not read."
        )
        refused.auth_header = "Bearer"  # type: ignore[attr-defined]  # as DRF's views set it
        return refused
    return TooLarge(
        f"The body has more than {MOST_UNKNOWN_BYTES:,} bytes; without a credential or a session "
        "no more are read."
    )


def _refusal(scope: Scope, error: exceptions.APIException) -> HttpResponse:
    logger.warning("refused a body: %s %r: %s", scope["method"], scope["path"][:120], error.detail)
    answer = plain_answer(scope["path"], error)
    answer["Connection"] = "close"
    return answer
