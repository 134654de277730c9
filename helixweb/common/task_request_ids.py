"""Tasks carry the id of the request that asked for them, into the worker's log."""

from typing import Any

from celery import signals

from runtime.protocol.logs import NO_REQUEST, REQUEST_ID, request_id_or_new

KEY = "helix_request_id"


def connect() -> None:
    """Connect the signals; call it once per process."""
    signals.before_task_publish.connect(_send, dispatch_uid="request-id-send")
    signals.task_prerun.connect(_take, dispatch_uid="request-id-take")
    signals.task_postrun.connect(_leave, dispatch_uid="request-id-leave")


def _send(headers: dict[str, Any] | None = None, **_: Any) -> None:
    if headers is not None and REQUEST_ID.get() != NO_REQUEST:
        headers[KEY] = REQUEST_ID.get()


def _take(task: Any = None, **_: Any) -> None:
    brought = getattr(task.request, KEY, None)
    REQUEST_ID.set(request_id_or_new(brought) if brought else NO_REQUEST)


def _leave(**_: Any) -> None:
    REQUEST_ID.set(NO_REQUEST)
