"""Work of one event loop that ends with other work."""

import asyncio
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def first_end(*works: Coroutine[Any, Any, object]) -> None:
    """Run all until one ends or raises; then cancel the others."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel(*tasks)
    for task in done:
        task.result()


async def unless(stopped: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`, which is cancelled and over if `stopped` comes first: None."""
    working = asyncio.create_task(work)
    try:
        await first_end(stopped.wait(), asyncio.wait({working}))
        return working.result() if working.done() else None
    finally:
        await cancel(working)


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel them and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def within(seconds: float | None, waited: Awaitable[object]) -> None:
    """Await it, for so long at most; None: however long it takes."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await waited
