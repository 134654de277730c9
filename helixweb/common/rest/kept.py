"""Lists that are asked for again while nothing was committed are answered with the same bytes.

All that such an answer hangs on (rows, keys, roles, who is active) is in the database, so it is
right as long as nothing is committed: the version of the whole database is read before the answer
is made, and again each time before it is given. Who commits anything, a report of a node or the
end of a key, thereby ends what every web process keeps; nothing has to be told or forgotten.

What hangs on the clock as well says until when it is right. Requests are the same if all they say
is, but for the version that they have: whole answers are kept, and who has the same gets 304.
"""

import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, BinaryIO, Protocol

from django.db import InterfaceError, OperationalError, connection
from django.http import HttpResponse
from django.utils import timezone

from helixweb.common import key_usage, web_requests
from helixweb.common.models import ApiKey
from helixweb.common.rest.etags import unchanged
from runtime.protocol.logs import HEADER, request_id_or_new

ALWAYS = datetime.max.replace(tzinfo=UTC)
MOST_BYTES = 32 << 20
# Who says one of these is answered anew: caches are not wanted, or who asks hangs on a session.
_ANEW = frozenset({b"cache-control", b"pragma", b"cookie", b"range"})
_REQUEST_ID = HEADER.lower().encode()
_IF_NONE_MATCH = b"if-none-match"

Scope = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Whose key an answer was given to, and until when it is right if nothing is committed."""

    key: int
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """As it leaves the middleware; the id of its request is not in `headers`."""

    terms: Terms
    made_at: datetime
    headers: tuple[tuple[str, str], ...]
    content: bytes

    def is_right_at(self, now: datetime) -> bool:
        """If nothing was committed since."""
        return self.made_at <= now < self.terms.until


def let_keep(response: Any, request: Any, *, until: datetime | None) -> None:
    """Note on a list's answer on which terms it may be kept, if it may.

    Only that of an API key whose requests are not counted in the database; once a minute one is
    answered anew, which writes down when the key was used.
    """
    key = request.auth
    if until is None or not isinstance(key, ApiKey):
        return
    if key.requests_per_min is not None or key.last_used_at is None:
        return
    ends = min(until, key.last_used_at + key_usage.WRITTEN_EVERY, key.expires_at or ALWAYS)
    response.terms = Terms(key=key.pk, until=ends)


class Version(Protocol):
    """Something that differs whenever anything was committed in between."""

    def read(self) -> Hashable | None:
        """None: it cannot be told, so that nothing may be kept."""


class VersionOfSqlite:
    """SQLite counts for each connection what others commit; this one commits nothing itself.

    A database that was put in the place of another is another version, too.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[str, int, int] | None = None
        self._opened = 0

    def read(self) -> Hashable | None:
        path = str(connection.settings_dict["NAME"])
        with self._lock:
            try:
                found = os.stat(path)
                opened = self._opened_at(path, (path, found.st_dev, found.st_ino))
                (commits,) = opened.execute("PRAGMA data_version").fetchone()
            except (sqlite3.DatabaseError, OSError):  # in memory, or away: views tell
                self._close()
                return None
            return self._opened, commits

    def close(self) -> None:
        with self._lock:
            self._close()

    def _opened_at(self, path: str, file: tuple[str, int, int]) -> sqlite3.Connection:
        if self._connection is None or file != self._file:
            self._close()
            self._connection = sqlite3.connect(
                path, timeout=0, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA query_only = 1")
            self._file, self._opened = file, self._opened + 1
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class VersionOfPostgres:
    """Which transactions a statement sees: where these are the same, all rows are.

    A server that started anew may have been put back to where its transactions were before.
    """

    def read(self) -> Hashable | None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_current_snapshot()::text, pg_postmaster_start_time()")
                found: tuple[Hashable, ...] = cursor.fetchone()
        except (OperationalError, InterfaceError):  # the view will meet it, and tell
            return None
        return found

    def close(self) -> None:
        """The connection is the thread's."""


def version_of_database() -> VersionOfSqlite | VersionOfPostgres:
    """Of the kind of database that the site has."""
    return VersionOfPostgres() if connection.vendor == "postgresql" else VersionOfSqlite()


class KeptAnswers:
    """Those of one version of the database, the newest that was answered from."""

    def __init__(self, database: Version) -> None:
        self.database = database
        self._lock = threading.Lock()
        self._version: Hashable = None
        self._answers: dict[bytes, Answer] = {}
        self._bytes = 0
        self._before: frozenset[bytes] = frozenset()  # what was kept of the version before
        self._making: dict[tuple[bytes, Hashable], Future[Answer | None]] = {}
        # Requests hold keys, which are not to lie in memory as long as answers do.
        self._secret = secrets.token_bytes(32)

    def answer(self, scope: Scope, body: BinaryIO, make: Callable[[], Any]) -> Any:
        """As before, if nothing it hangs on can have changed since; else as `make` makes it."""
        given = _taken(scope, _IF_NONE_MATCH) if scope["method"] == "GET" else None
        response = self._whole(scope, body, make)
        told = unchanged(response, given)
        if told is None:
            return response
        told._resource_closers = response._resource_closers  # type: ignore[attr-defined]  # Django's
        return told

    def _whole(self, scope: Scope, body: BinaryIO, make: Callable[[], Any]) -> Any:
        began_s = time.perf_counter()
        name = None if body.read(1) else self._name_of(scope)
        body.seek(0)
        version = None if name is None else self.database.read()
        if name is None or version is None:
            return make()
        kept, ours = self._found(name, version=version)
        if kept is not None:
            response = _given_again(kept, scope)
            web_requests.count("GET", response, time.perf_counter() - began_s)
            return response
        made, now = None, timezone.now()
        try:
            response = make()
            made = _answer_of(response, made_at=now)
            return response
        finally:
            self._keep(name, made, version=version, ours=ours)

    def _name_of(self, scope: Scope) -> bytes | None:
        """The same for requests that say the same; None: its answer is not kept."""
        if scope["method"] != "GET":
            return None
        said = [one for one in scope["headers"] if one[0] != _REQUEST_ID]
        if any(name in _ANEW for name, _ in said):
            return None
        client = scope["client"][0] if scope.get("client") else ""
        where = (scope.get("scheme"), scope.get("root_path"), scope.get("server"), client)
        text = repr((where, scope["path"], scope["query_string"], said))
        return blake2b(text.encode(), key=self._secret, digest_size=32).digest()

    def _found(
        self, name: bytes, *, version: Hashable
    ) -> tuple[Answer | None, Future[Answer | None]]:
        """What is kept, or what somebody makes of the same version just now; None: to be made.

        Whatever was kept before a commit is made once after it, however many ask. Only those wait
        who ask for what could be kept before: others may wait for events, each for their own.
        """
        ours: Future[Answer | None] = Future()
        with self._lock:
            kept = self._answers.get(name) if version == self._version else None
            if kept is not None and kept.is_right_at(timezone.now()):
                return kept, ours
            theirs = self._making.setdefault((name, version), ours)
            waits = theirs is not ours and (name in self._answers or name in self._before)
        kept = theirs.result() if waits else None
        is_right = kept is not None and kept.is_right_at(timezone.now())
        return kept if is_right else None, ours

    def _keep(
        self,
        name: bytes,
        answer: Answer | None,
        *,
        version: Hashable,
        ours: Future[Answer | None],
    ) -> None:
        """`version`: of the database before the answer was made. What was committed meanwhile,
        and may be in it in part, made another, so that it will not be found."""
        with self._lock:
            if self._making.get((name, version)) is ours:
                del self._making[name, version]
            if answer is not None:
                if version != self._version or self._bytes + len(answer.content) > MOST_BYTES:
                    self._before = frozenset(self._answers)
                    self._version, self._answers, self._bytes = version, {}, 0
                before = self._answers.get(name)
                self._bytes += len(answer.content) - (len(before.content) if before else 0)
                self._answers[name] = answer
        ours.set_result(answer)


def _taken(scope: Scope, name: bytes) -> str | None:
    """The header, which the request then says no more."""
    values = [value for one, value in scope["headers"] if one == name]
    if not values:
        return None
    scope["headers"] = [one for one in scope["headers"] if one[0] != name]
    return b", ".join(values).decode("latin-1")


def _answer_of(response: Any, *, made_at: datetime) -> Answer | None:
    """What is kept of a response; None: nothing."""
    terms = getattr(response, "terms", None)
    if terms is None or response.status_code != 200 or response.streaming or response.cookies:
        return None
    if len(response.content) > MOST_BYTES:
        return None
    headers = tuple((name, value) for name, value in response.items() if name != HEADER)
    return Answer(terms=terms, made_at=made_at, headers=headers, content=response.content)


def _given_again(kept: Answer, scope: Scope) -> HttpResponse:
    """What middleware does for each request is done here: its id, and the use of the key."""
    brought = next((value for name, value in scope["headers"] if name == _REQUEST_ID), b"")
    key_usage.count_unwritten(kept.terms.key)
    response = HttpResponse(kept.content, headers=dict(kept.headers))
    response[HEADER] = request_id_or_new(brought.decode("latin-1"))
    return response
