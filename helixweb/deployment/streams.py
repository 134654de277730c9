"""The event stream of a process: its desired state now, and again after each change.

An event on its topic only means "read again": what is sent is read from the rows at that moment,
so a stream never sends an older state, and the outbox contains no keys and no addresses.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse
from pydantic import BaseModel

from helixweb.common.broadcaster import BROADCASTER, KEEP_ALIVE_S, Subscription
from helixweb.common.connections import returns_connection
from helixweb.common.sse import stream_response
from helixweb.inventory.models import Coordinator, Node
from runtime.protocol.control import DesiredState, HeartbeatReply, StageAssignment
from runtime.protocol.profiling import ProfileOrder

# Fields that earlier releases do not have.
_NEWER: dict[type[BaseModel], tuple[str, ...]] = {
    DesiredState: ("looks",),
    StageAssignment: ("engine", "wire_dtype"),
    HeartbeatReply: ("to_reach", "to_measure"),
    ProfileOrder: ("engine",),
}
ProcessT = TypeVar("ProcessT", Node, Coordinator)
# The state as the process must see it, as JSON; None once the process was removed.
ReadState = Callable[[], str | None]


def desired_stream(
    process: ProcessT, decide: Callable[[ProcessT], BaseModel]
) -> StreamingHttpResponse:
    """`event: desired`, `data: {"state": …}` as text/event-stream."""
    return stream_response(desired_frames(process.topic, follow(process, decide)))


def follow(process: ProcessT, decide: Callable[[ProcessT], BaseModel]) -> ReadState:
    """Reads the state of `process` again; None once its credential is no longer its own."""

    @returns_connection
    def read() -> str | None:
        rows = type(process)._base_manager.select_related("cluster")
        row = rows.filter(pk=process.pk, credential_hash=process.credential_hash).first()
        state = None if row is None else decide(row)
        return None if state is None else state.model_dump_json(exclude=unset_of(state))

    return read


async def desired_frames(
    topic: str, read_state: ReadState, *, look_again_s: float = KEEP_ALIVE_S
) -> AsyncIterator[bytes]:
    """SSE frames; ends when the process was removed.

    Looks again after `look_again_s` without an event as well: a key may have expired meanwhile.
    """
    subscription = await BROADCASTER.subscribe([topic])
    try:
        yield b"retry: 1000\n\n"
        sent = None
        while not subscription.is_over:
            state = await sync_to_async(read_state)()
            if state is None:
                return
            if state != sent:
                sent = state
                yield f'event: desired\ndata: {{"state": {state}}}\n\n'.encode()
            else:
                yield b": keep-alive\n\n"
            await _nudge(subscription, timeout_s=look_again_s)
    finally:
        BROADCASTER.unsubscribe(subscription)


def unset_of(message: BaseModel) -> dict[str, Any]:
    """Fields to leave out: processes of an earlier release refuse those they do not know."""
    fields = type(message).model_fields
    newer = _NEWER.get(type(message), ())
    unset: dict[str, Any] = {
        name: True for name in newer if getattr(message, name) == fields[name].default
    }
    for name in fields:
        value = getattr(message, name)
        if type(value) in _NEWER and (within := unset_of(value)):
            unset[name] = within
    return unset


async def _nudge(subscription: Subscription, *, timeout_s: float) -> None:
    """Return after the next event, taking all that have come; or after the timeout."""
    try:
        async with asyncio.timeout(timeout_s):
            await subscription.queue.get()
    except TimeoutError:
        return
    while not subscription.queue.empty():
        subscription.queue.get_nowait()
