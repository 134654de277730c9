"""What every process that serves HTTP does: listen, serve until a signal, end with its parts."""

import asyncio
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from runtime.platforms import on_signals
from runtime.protocol.complaints import StartRefused
from runtime.tasks import first_end, within

GRACEFUL_SHUTDOWN_S = 3  # for answers whose requests have ended
LOOK_S = 0.05

logger = logging.getLogger(__name__)


class CannotListen(StartRefused):
    """The address is taken or not of this machine; the message names the remedy."""


def listen(host: str, port: int, *, option: str = "--port") -> socket.socket:
    """Raises CannotListen, naming the `option` that chooses another."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise CannotListen(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another {option}, "
            "or stop what uses it"
        ) from error


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: who uses it has more to stop."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        ssl_keyfile: str | None = None,
        ssl_certfile: str | None = None,
        protocol: type[asyncio.Protocol] | None = None,
    ) -> None:
        """By HTTPS where there are files for it; `protocol` in place of uvicorn's own."""
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol or "auto",
                ssl_keyfile=ssl_keyfile,
                ssl_certfile=ssl_certfile,
                log_config=None,
                access_log=False,
                proxy_headers=False,  # who asks may not say where from: keys are for networks
                lifespan="off",
                timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_S,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def hear_signals() -> "asyncio.Queue[int]":
    """Every SIGTERM and SIGINT from now on."""
    signals: asyncio.Queue[int] = asyncio.Queue()
    on_signals((signal.SIGTERM, signal.SIGINT), signals.put_nowait)
    return signals


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a process ends: at SIGTERM `close`, which refuses new requests, and `cut` when there are
    no `requests`, `grace_s` later, or at a second signal; at SIGINT `cut` at once. `cut` ends what
    is still there; the HTTP server ends after it."""

    requests: Callable[[], int]
    close: Callable[[], None]
    cut: Callable[[], Awaitable[None]]
    grace_s: float


async def serve_until_told(
    server: HttpServer,
    listener: socket.socket,
    *works: Coroutine[Any, Any, None],
    signals: "asyncio.Queue[int]",
    ending: Ending,
) -> None:
    """Serve, with `works` beside, until a signal or until one of them ends or raises."""
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await first_end(told_to_end(signals, ending), *works, _outlive(serving))
    finally:
        await ending.cut()
        server.should_exit = True
        await serving


async def told_to_end(signals: "asyncio.Queue[int]", ending: Ending) -> None:
    """Return when it is time for `ending.cut`."""
    if await signals.get() == signal.SIGINT:
        return
    logger.info("stopping: %d requests end first", ending.requests())
    ending.close()
    await within(ending.grace_s, first_end(_none(ending.requests), taken(signals)))


async def taken(signals: "asyncio.Queue[int]") -> None:
    """Return at the next signal."""
    await signals.get()


async def _none(requests: Callable[[], int]) -> None:
    while requests():  # noqa: ASYNC110 - requests end in many ways
        await asyncio.sleep(LOOK_S)


async def _outlive(serving: asyncio.Task[None]) -> None:
    """Until the HTTP server ends, which by itself it does only when it fails."""
    await asyncio.wait({serving})
