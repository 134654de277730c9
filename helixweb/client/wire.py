"""Formats of the API's queries and events. Pure functions."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import httpx

from runtime.protocol.server_events import ServerEventReader

# Query parameters with lists joined by commas; all others are repeated for each value.
_JOINED, _JOINED_ENDING = ("fields", "ordering"), "__in"


class Event(NamedTuple):
    """One event; pass its `id` to `follow` as `last_id` to resume after it."""

    id: str
    type: str
    data: dict[str, Any]


def read_events(chunks: Iterable[bytes]) -> Iterator[Event]:
    """Parse server-sent events. Raises ValueError if their data is not JSON."""
    reader = ServerEventReader()
    for chunk in chunks:
        for event in reader.feed(chunk):
            value = json.loads(event.data)
            document = value if isinstance(value, dict) else {"value": value}
            yield Event(event.id, event.event, document)


def plain_query(query: Mapping[str, Any]) -> httpx.QueryParams:
    """Query parameters as the API reads them; None is left out."""
    pairs = list[tuple[str, str]]()
    for name, value in query.items():
        if isinstance(value, str) or not isinstance(value, Iterable):
            pairs += [] if value is None else [(name, _plain(value))]
        elif name in _JOINED or name.endswith(_JOINED_ENDING):
            pairs.append((name, ",".join(map(_plain, value))))
        else:
            pairs += [(name, _plain(one)) for one in value]
    return httpx.QueryParams(tuple(pairs))


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
