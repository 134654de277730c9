"""Answers the REST API in threads that stay, with database connections that stay.

Django's handler for ASGI makes a thread for every request and a database connection in it, and
crosses between thread and event loop at each middleware: several milliseconds, of which the API is
asked hundreds of times a second. Here one crossing takes a request through the same middleware to
its view. Pages, of which people open a few, go Django's way. Agents and coordinators have threads
of their own, and so have imports: however many people wait, heartbeats do not.

On SQLite one thread makes all lists that are quickly made. Its library lets go of Python's lock at
each row, so threads that read at once hand it to and fro, which takes them twice as long.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import current_thread
from typing import Any

from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.core.handlers.base import BaseHandler
from django.db import connection
from django.db.backends.signals import connection_created
from django.http import HttpRequest
from django.urls import ResolverMatch, set_script_prefix

from helixweb.common.rest.bodies import BoundedBody, is_known
from helixweb.common.rest.kept import KeptAnswers, version_of_database
from helixweb.common.rest.lifespan import serve_lifespan

PREFIX = "/api/v1/"
# Requests that wait for the database, or for a plan to be read, keep nobody else waiting.
THREADS = 16
PROCESS_PREFIXES = (f"{PREFIX}agent/", f"{PREFIX}coordinator/")
PROCESS_THREADS = 8
# Reading a large file takes seconds of the interpreter that all threads share.
IMPORT_SUFFIX = "/import/"
IMPORT_THREADS = 2
# Who waits longer for the one thread of lists, since some list is not so quick, gets another.
PATIENCE_S = 0.05
MOST_MATCHES = 1000
CONNECTIONS_KEPT_S = 60.0
_NAME = "rest"

Scope = dict[str, Any]
Receive = Callable[[], Any]
Send = Callable[[Any], Any]


class _Handler(BaseHandler):
    """Django's, but for the views of paths without arguments, which are looked for once."""

    def __init__(self) -> None:
        super().__init__()
        self._matches: dict[str, ResolverMatch] = {}

    def resolve_request(self, request: HttpRequest) -> ResolverMatch:
        match = self._matches.get(request.path_info)
        if match is None:
            match = super().resolve_request(request)
            if not (match.args or match.kwargs) and len(self._matches) < MOST_MATCHES:
                self._matches[request.path_info] = match
        request.resolver_match = match
        return match


class Application(ASGIHandler):
    """Django's, but for the server's lifespan and what is below `PREFIX`."""

    def __init__(self) -> None:
        super().__init__()
        self._in_a_thread = _Handler()
        self._in_a_thread.load_middleware(is_async=False)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=_NAME)
        self._process_threads = ThreadPoolExecutor(
            PROCESS_THREADS, thread_name_prefix=f"{_NAME}-processes"
        )
        self._import_threads = ThreadPoolExecutor(
            IMPORT_THREADS, thread_name_prefix=f"{_NAME}-imports"
        )
        self._quick_thread = ThreadPoolExecutor(1, thread_name_prefix=f"{_NAME}-lists")
        self._has_quick = connection.vendor == "sqlite"
        self._quick: set[str] = set()  # paths of lists
        self.kept = KeptAnswers(version_of_database())
        connection_created.connect(_keep)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await serve_lifespan(receive, send, self._threads)
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
            return self._process_threads
        if scope["method"] == "POST" and scope["path"].endswith(IMPORT_SUFFIX):
            return self._import_threads
        return self._threads

    async def _answer_rest(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        run = asyncio.get_running_loop().run_in_executor
        try:
            response = await self._answer_of(scope, body)
            if not response.streaming:
                await self.send_response(response, send)
                return
            try:
                await _until_left(self.send_response(response, send), receive)
            finally:
                await run(self._threads, response.close)
        finally:
            body.close()

    async def _answer_of(self, scope: Scope, body: Any) -> Any:
        loop = asyncio.get_running_loop()
        if scope["path"] in self._quick and scope["method"] == "GET":
            begun = self._quick_thread.submit(self._respond, scope, body)
            patience = loop.call_later(PATIENCE_S, begun.cancel)  # which does nothing once it began
            try:
                return await asyncio.wrap_future(begun)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():  # it is the request that is given up
                    raise
            finally:
                patience.cancel()
        response = await loop.run_in_executor(self._threads_for(scope), self._respond, scope, body)
        if self._has_quick and getattr(response, "is_quick", False):
            self._quick.add(scope["path"])
        return response

    def _respond(self, scope: Scope, body: Any) -> Any:
        """In a thread: all but the sending, which for a stream goes on for hours."""
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=type(self), scope=scope)
        response = self.kept.answer(scope, body, lambda: self._made(scope, body))
        response._handler_class = type(self)
        if not response.streaming:
            response.close()
        return response

    def _made(self, scope: Scope, body: Any) -> Any:
        request, refusal = self.create_request(scope, body)
        return refusal if request is None else self._in_a_thread.get_response(request)


async def _until_left(sending: Any, receive: Receive) -> None:
    """Send until there is no more, or nobody listens."""
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
    """Connections of these threads stay; each request looks first whether they still work."""
    if current_thread().name.startswith(_NAME):
        connection.close_at = time.monotonic() + CONNECTIONS_KEPT_S
