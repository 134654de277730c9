"""Work for a client that ends when the client disconnects."""

import asyncio
from collections.abc import Awaitable

from starlette.types import Message, Receive


async def unless_disconnected(answering: Awaitable[None], receive: Receive) -> None:
    """Run `answering` to its end, or cancel it when the client disconnects."""

    async def hang_up() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    tasks = [asyncio.ensure_future(answering), asyncio.ensure_future(hang_up())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    if isinstance(outcomes[0], Exception) and not isinstance(outcomes[0], OSError):
        raise outcomes[0]  # an OSError is the client's side of the connection going away


async def no_more() -> Message:
    """A `receive` for a response that reads nothing; the body was read before."""
    return {"type": "http.disconnect"}
