"""The actor of the current request, a user or a process, for the change log.

Services are called by pages, by the REST API and by processes alike and know no request; passing
the user through all of them would put a parameter into each signature that one function reads.
"""

import getpass
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import SuspiciousOperation
from django.db import models
from django.http import HttpRequest, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from django.utils import timezone

from helixweb.common.addresses import address_of
from helixweb.common.models import ApiKey

COMMENT_HEADER = "X-Change-Comment"
COMMENT_LENGTH = 200

T = TypeVar("T")
_REQUEST: ContextVar[HttpRequest | None] = ContextVar("helixweb_request", default=None)
_COMMAND: ContextVar[str] = ContextVar("helixweb_command", default="")
_BATCH: ContextVar[uuid.UUID | None] = ContextVar("helixweb_batch", default=None)


@contextmanager
def _is(variable: ContextVar[T], value: T) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def acting(request: HttpRequest) -> AbstractContextManager[None]:
    """Within, `current_user` is the sender of `request`."""
    return _is(_REQUEST, request)


def commanding(command: str) -> AbstractContextManager[None]:
    """Context manager: changes are logged as made by the server's user who runs `command`."""
    return _is(_COMMAND, command)


def together() -> AbstractContextManager[None]:
    """Within, all lines of the change log share one batch, since one action causes them."""
    return _is(_BATCH, _BATCH.get() or uuid.uuid4())


def current_request() -> HttpRequest | None:
    """The current request; None in a task or a command."""
    return _REQUEST.get()


def current_user() -> Any | None:
    """The user of the session or API key; None for a process, a task or no login.

    Read when it is asked for: the REST framework knows the owner of a key only within the view.
    """
    user = getattr(_REQUEST.get(), "user", None)
    return user if isinstance(user, AbstractBaseUser) and user.is_authenticated else None


def by_whom() -> dict[str, Any]:
    """Columns of a line of the change log: actor, time and batch."""
    request, command = _REQUEST.get(), _COMMAND.get()
    columns: dict[str, Any] = dict.fromkeys(
        ("actor", "api_key", "address", "request_id", "comment"), ""
    )
    columns |= {"actor_kind": "site", "batch": _BATCH.get(), "at": timezone.now()}
    if request is not None:
        columns |= {
            **_behind(request),
            "address": address_of(request),
            "request_id": getattr(request, "request_id", ""),
            "comment": _comment(request),
        }
    elif command:
        columns |= {"actor_kind": "command", "actor": _runs_commands(), "comment": command}
    return columns


def _behind(request: HttpRequest) -> dict[str, str]:
    user, auth = current_user(), getattr(request, "auth", None)
    if user is not None:
        name = user.get_username()[:150]
        if isinstance(auth, ApiKey):
            return {"actor_kind": "key", "actor": name, "api_key": auth.key}
        return {"actor_kind": "person", "actor": name}
    if isinstance(auth, models.Model):  # a node or a coordinator
        return {"actor_kind": "process", "actor": str(auth)[:150]}
    return {"actor_kind": "nobody"}


def _comment(request: HttpRequest) -> str:
    """The user's comment on a change: a header by REST, a field of a form."""
    text = _as_utf8(request.headers.get(COMMENT_HEADER, ""))
    if not text and request.method == "POST" and not request.path.startswith("/api/"):
        text = _of_form(request)
    return "".join(char for char in text if char.isprintable())[:COMMENT_LENGTH]


def _as_utf8(text: str) -> str:
    """The text of a header, whose bytes Django reads as Latin-1."""
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        return text


def _of_form(request: HttpRequest) -> str:
    """The comment; empty where the form cannot be read."""
    try:
        return str(request.POST.get("change_comment", ""))
    except (MultiPartParserError, SuspiciousOperation, UnreadablePostError):
        return ""


def _runs_commands() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return ""
