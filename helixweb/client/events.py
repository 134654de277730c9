"""Follow the site's events: one stream, resumed after a break."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from helixweb.client.connection import API, Connection, unreachable
from helixweb.client.errors import ClientError, ServerFailed, TooManyRequests, Unreachable

PATH = f"{API}/events/"
# The server sends at least every 15 s; a connection that misses three of these is dead.
READ_TIMEOUT_S = 45.0
LONGEST_PAUSE_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event; pass its `id` to `follow` as `last_id` to resume after it."""

    id: str
    type: str
    data: dict[str, Any]


def follow(
    connection: Connection,
    topics: Iterable[str],
    *,
    last_id: str = "",
    tell: Callable[[str], None] = lambda text: None,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Event]:
    """Events of topics such as `cluster:1`, without end; `tell` gets a message at each break.

    Raises any ClientError on the first try; later, only refusals end it.
    """
    pause_s, has_begun = 1.0, False
    while True:
        try:
            for event in _one_stream(connection, topics, last_id=last_id):
                has_begun, pause_s, last_id = True, 1.0, event.id or last_id
                yield event
            has_begun = True
        except (Unreachable, ServerFailed, TooManyRequests) as error:
            if not has_begun:
                raise
            tell(f"{error}; trying again")
            if isinstance(error, TooManyRequests):
                pause_s = max(pause_s, error.retry_after_s or 0.0)
        pause(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def read_events(lines: Iterable[str]) -> Iterator[Event]:
    """Parse server-sent events (WHATWG HTML §9.2) with JSON data."""
    kind, data, last_id = "", list[str](), ""
    for line in lines:
        if not line:
            if data:
                yield Event(id=last_id, type=kind or "message", data=_mapping("\n".join(data)))
            kind, data = "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "data":
            data.append(value)
        elif name == "id":
            last_id = value


def _one_stream(connection: Connection, topics: Iterable[str], *, last_id: str) -> Iterator[Event]:
    headers = {"Accept": "text/event-stream"}
    if last_id:
        headers["Last-Event-ID"] = last_id
    timeout = httpx.Timeout(READ_TIMEOUT_S, connect=5.0)
    query = {"topics": ",".join(topics)}
    try:
        with connection.http.stream(
            "GET", PATH, params=query, headers=headers, timeout=timeout
        ) as answer:
            if not answer.is_success:
                answer.read()
            connection.checked(answer)
            yield from read_events(answer.iter_lines())
    except httpx.TransportError as error:
        raise unreachable(connection.url, error) from error


def _mapping(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ClientError(f"an event came with data that is not JSON: {text[:80]!r}") from error
    return value if isinstance(value, dict) else {"value": value}
