"""ASGI lifespan of a web process: writes down the API-key usage that is counted in memory."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from django.db import Error
from django.utils import timezone

from helixweb.common import key_usage
from helixweb.common.connections import returns_connection

logger = logging.getLogger(__name__)


async def serve_lifespan(
    receive: Callable[[], Any], send: Callable[[Any], Any], threads: Executor
) -> None:
    """Answer the server's `lifespan` messages: usage is written every minute and at shutdown."""
    await receive()
    await send({"type": "lifespan.startup.complete"})
    ending = asyncio.ensure_future(receive())
    while not ending.done():
        await asyncio.wait({ending}, timeout=key_usage.WRITTEN_EVERY.total_seconds())
        await asyncio.get_running_loop().run_in_executor(threads, _write)
    await send({"type": "lifespan.shutdown.complete"})


@returns_connection
def _write() -> None:
    try:
        key_usage.write_all(now=timezone.now())
    except Error as error:  # InterfaceError, which a lost server causes, is no DatabaseError
        logger.warning("the usage of API keys could not be written: %s", error)
