"""ASGI lifespan of a web process: writes down the API-key usage that is counted in memory."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any

from django.db import Error, close_old_connections
from django.utils import timezone

from helixweb.common import key_usage

logger = logging.getLogger(__name__)


async def serve_lifespan(
    receive: Callable[[], Any], send: Callable[[Any], Any], threads: Executor
) -> None:
    """Answer the server's `lifespan` messages: usage is written every minute and at shutdown."""
    writing: asyncio.Task[None] | None = None
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            writing = asyncio.create_task(_write_regularly(threads))
            await send({"type": "lifespan.startup.complete"})
        else:
            if writing is not None:
                writing.cancel()
                with suppress(asyncio.CancelledError):
                    await writing
            await asyncio.get_running_loop().run_in_executor(threads, _write)
            await send({"type": "lifespan.shutdown.complete"})
            return


async def _write_regularly(threads: Executor) -> None:
    while True:
        await asyncio.sleep(key_usage.WRITTEN_EVERY.total_seconds())
        await asyncio.get_running_loop().run_in_executor(threads, _write)


def _write() -> None:
    close_old_connections()  # one that broke since
    try:
        key_usage.write_all(now=timezone.now())
    except Error as error:  # InterfaceError, which a lost server causes, is no DatabaseError
        logger.warning("the usage of API keys could not be written: %s", error)
