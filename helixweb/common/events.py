"""The event outbox: `emit` inside the transaction that changes state; SSE reads it.

Topics: `cluster:<id>`, `plan-run:<id>`, `deployment:<id>`, `node:<id>`, `metrics:<cluster id>` for
pages; `agent:<node id>` and `coordinator:<id>` for processes that hold a stream.
"""

from typing import Any

from django.db import transaction

from helixweb.common.broadcaster import BROADCASTER, latest_place
from helixweb.common.models import Event


def emit(topic: str, type_: str, data: dict[str, Any]) -> None:
    """Write one event; it is delivered when (and only if) the current transaction commits."""
    Event.objects.create(topic=topic, type=type_, data=data)
    transaction.on_commit(BROADCASTER.wake)


def latest_id() -> str:
    """Where a page is that reads its rows after this: it misses nothing by replaying from here."""
    return str(latest_place())
