"""Answers the REST API in a fixed pool of threads, with persistent database connections.

Django's ASGI handler starts a thread and opens a database connection for each request, and switches
between thread and event loop at each middleware: several milliseconds, for requests that arrive
hundreds of times a second. Here each request runs through the same middleware in one thread. Pages
use Django's handler. Agents and coordinators have separate threads, and so have imports, so that
users' requests do not delay heartbeats. Heartbeats that arrive at about the same time are answered
together in one thread: their rows are read and written at once.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from io import BytesIO
from threading import current_thread
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.base import SessionBase
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, ASGIRequest, get_script_prefix
from django.core.handlers.base import BaseHandler
from django.core.handlers.exception import response_for_exception
from django.db import Error, close_old_connections
from django.db.backends.signals import connection_created
from django.http import HttpResponse
from django.urls import Resolver404, resolve, set_script_prefix
from django.utils import timezone
from django.utils.module_loading import import_string
from rest_framework import exceptions

from helixweb.common import key_usage
from helixweb.common.connections import returns_connection
from helixweb.common.problems import TooLarge, plain_answer

MOST_BYTES = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
# A process that registers proves itself by its message, which is no larger; so do log-in forms.
MOST_UNKNOWN_BYTES = 1_000_000

Scope = dict[str, Any]
logger = logging.getLogger(__name__)
PREFIX = "/api/v1/"
PROCESS_PREFIXES = (f"{PREFIX}agent/", f"{PREFIX}coordinator/")
HEARTBEAT = f"{PREFIX}agent/heartbeat"
# How long a heartbeat waits for others to be answered together; longer while many such groups are
# being answered, so that groups grow with the load.
GATHERED_S = 0.05
GROUPS = 2
# Reading a large file takes seconds of the interpreter that all threads share.
IMPORT_SUFFIX = "/import/"
THREADS = {"people": 16, "processes": 8, "imports": 2}
CONNECTIONS_KEPT_S = 60.0
_NAME = "rest"
Receive = Callable[[], Any]
Send = Callable[[Any], Any]
Asked = tuple[Scope, Any]  # a request and its body


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


class Gathering:
    """Requests that wait to be answered together by `answer_all`, in a thread of `pool`."""

    def __init__(
        self, answer_all: Callable[[Sequence[Asked]], Sequence[Any]], pool: Executor
    ) -> None:
        self._answer_all = answer_all
        self._pool = pool
        self._places = asyncio.Semaphore(GROUPS)
        self._waiting: list[Asked] = []
        self._answers: asyncio.Future[Sequence[Any]] | None = None

    async def answer(self, scope: Scope, body: Any) -> Any:
        """The response to one of them."""
        place = len(self._waiting)
        self._waiting.append((scope, body))
        if self._answers is None:
            self._answers = asyncio.ensure_future(self._answer_waiting())
        return (await asyncio.shield(self._answers))[place]

    async def _answer_waiting(self) -> Sequence[Any]:
        await asyncio.sleep(GATHERED_S)
        async with self._places:
            waiting, self._waiting, self._answers = self._waiting, [], None
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._pool, self._answer_all, waiting)


class Application(ASGIHandler):
    """Django's ASGI application, except for lifespan messages and paths below `PREFIX`."""

    def __init__(self) -> None:
        super().__init__()
        self._in_a_thread = BaseHandler()
        self._in_a_thread.load_middleware(is_async=False)
        self._pools = {
            name: ThreadPoolExecutor(threads, thread_name_prefix=f"{_NAME}-{name}")
            for name, threads in THREADS.items()
        }
        self._heartbeats = Gathering(self._respond_together, self._pools["processes"])
        connection_created.connect(_keep)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await serve_lifespan(receive, send, self._pools["people"])
            return
        bounded = BoundedBody(scope, receive, is_known=lambda: self._is_known(scope))
        await bounded.check_length()
        if bounded.refusal is None:
            if scope["path"].startswith(PREFIX):
                await self._answer_rest(scope, bounded, send)
            else:
                await super().__call__(scope, bounded, send)
        if bounded.refusal is not None:
            await self.send_response(bounded.refusal, send)

    async def _is_known(self, scope: Scope) -> bool:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads_for(scope), is_known, scope)

    def _threads_for(self, scope: Scope) -> ThreadPoolExecutor:
        if scope["path"].startswith(PROCESS_PREFIXES):
            return self._pools["processes"]
        if scope["method"] == "POST" and scope["path"].endswith(IMPORT_SUFFIX):
            return self._pools["imports"]
        return self._pools["people"]

    async def _answer_rest(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        run = asyncio.get_running_loop().run_in_executor
        try:
            if scope["path"] == HEARTBEAT:
                response = await self._heartbeats.answer(scope, body)
            else:
                response = await run(self._threads_for(scope), self._respond, scope, body)
            if not response.streaming:
                await self.send_response(response, send)
                return
            try:
                await _until_left(self.send_response(response, send), receive)
            finally:
                await run(self._pools["people"], response.close)
        finally:
            body.close()

    def _respond(self, scope: Scope, body: Any) -> Any:
        """Answer in a thread, except sending, which takes hours for a stream."""
        signals.request_started.send(sender=type(self), scope=scope)
        return self._respond_to(*self.create_request(scope, body), scope=scope)

    def _respond_together(self, asked: Sequence[Asked]) -> list[Any]:
        """Answer requests of one view in a thread; its `together` reads and writes rows for all. If
        that fails, all of them fail."""
        signals.request_started.send(sender=type(self), scope=asked[0][0])
        made = [self.create_request(scope, body) for scope, body in asked]
        requests = [request for request, _refusal in made if request is not None]
        view: Any = resolve(HEARTBEAT).func
        try:
            with view.cls.together(requests):
                return [
                    self._respond_to(request, refusal, scope=scope)
                    for (request, refusal), (scope, _body) in zip(made, asked, strict=True)
                ]
        except Error as error:
            return [
                refusal if request is None else response_for_exception(request, error)
                for request, refusal in made
            ]

    def _respond_to(self, request: Any, refusal: Any, *, scope: Scope) -> Any:
        set_script_prefix(get_script_prefix(scope))
        response: Any = refusal if request is None else self._in_a_thread.get_response(request)
        response._handler_class = type(self)
        if not response.streaming:
            response.close()
        return response


async def _until_left(sending: Any, receive: Receive) -> None:
    """Send until all is sent or the client disconnects."""
    task, left = asyncio.ensure_future(sending), asyncio.ensure_future(receive())
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    finally:
        for one in (task, left):
            one.cancel()
        await asyncio.gather(task, left, return_exceptions=True)


def _keep(connection: Any, **signal: Any) -> None:
    """Keep this thread's connection open; each request checks first that it still works."""
    if current_thread().name.startswith(_NAME):
        connection.close_at = time.monotonic() + CONNECTIONS_KEPT_S


async def serve_lifespan(
    receive: Callable[[], Any], send: Callable[[Any], Any], threads: Executor
) -> None:
    """Answer the server's `lifespan` messages: usage is written every minute and at shutdown."""
    await receive()
    await send({"type": "lifespan.startup.complete"})
    ending = asyncio.ensure_future(receive())
    while not ending.done():
        await asyncio.wait({ending}, timeout=key_usage.WRITTEN_EVERY.total_seconds())
        await asyncio.get_running_loop().run_in_executor(threads, _write)
    await send({"type": "lifespan.shutdown.complete"})


@returns_connection
def _write() -> None:
    try:
        key_usage.write_all(now=timezone.now())
    except Error as error:  # InterfaceError, which a lost server causes, is no DatabaseError
        logger.warning("the usage of API keys could not be written: %s", error)
