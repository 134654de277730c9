"""The event outbox: `emit` inside the transaction that changes state; SSE reads it.

Topics: `cluster:<id>`, `plan-run:<id>`, `deployment:<id>`, `node:<id>`, `metrics:<cluster id>` for
pages; `agent:<node id>` and `coordinator:<id>` for processes that hold a stream.
"""

from collections.abc import Iterable
from typing import Any

from django.db import transaction

from helixweb.common.broadcaster import BROADCASTER, latest_place
from helixweb.common.models import Event


def emit(topic: str, type_: str, data: dict[str, Any]) -> None:
    """Write one event; it is delivered when (and only if) the current transaction commits."""
    emit_to([topic], type_, data)


def emit_to(topics: Iterable[str], type_: str, data: dict[str, Any]) -> None:
    """Emit one event to each of the topics."""
    emit_all((topic, type_, data) for topic in topics)


def emit_all(events: Iterable[tuple[str, str, dict[str, Any]]]) -> None:
    """Emit many events (topic, type, data) with one statement."""
    Event.objects.bulk_create(
        (Event(topic=topic, type=type_, data=data) for topic, type_, data in events), batch_size=500
    )
    transaction.on_commit(BROADCASTER.wake)


def latest_id() -> str:
    """The position of a page that reads its rows after this call; a replay from it is complete."""
    return str(latest_place())
