"""Work for a client that ends when the client disconnects."""

from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from starlette.types import Message, Receive

from runtime.tasks import first_end


async def unless_disconnected(
    answering: Coroutine[Any, Any, None], receive: Receive, *others: Coroutine[Any, Any, object]
) -> None:
    """Run `answering` to its end, or cancel it when the client disconnects or another ends."""

    async def hang_up() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    with suppress(OSError):  # the client's side of the connection going away
        await first_end(answering, hang_up(), *others)


async def no_more() -> Message:
    """A `receive` for a response that reads nothing; the body was read before."""
    return {"type": "http.disconnect"}
