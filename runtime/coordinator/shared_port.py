"""One port for chat clients, stages and nodes that measure: the first bytes show which it is.

A ZeroMQ greeting begins with 0xFF, which no HTTP request does. What stages send, which is tokens,
is handed on to a private socket; who they are is proven there, as at a port of its own. That socket
is a file in a folder of its own, which no other process can open, or a port of loopback on systems
without such sockets. A measurement of a link begins with `runtime.link_measuring.MAGIC`, which no
method of HTTP does.
"""

import asyncio
import logging
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from runtime.instances.command_lines import LOOPBACK
from runtime.link_measuring import MAGIC, READ_AHEAD_BYTES, LinkAnswers
from runtime.membership.data_address import choose_port, data_endpoint

_FAMILY: socket.AddressFamily | None = getattr(socket, "AF_UNIX", None)
GREETING = 0xFF  # the first byte of ZMTP, all versions since 2.0
SILENT_S = 30.0  # a connection on which nothing comes for so long is closed
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PrivateSocket:
    """One place. `path` is a Unix socket; empty where there are none, and `port` counts."""

    path: str
    port: int = 0

    @property
    def zmq_endpoint(self) -> str:
        """For a socket of ZeroMQ to bind."""
        return f"ipc://{self.path}" if self.path else data_endpoint(LOOPBACK, self.port)

    async def connect(self, protocol: asyncio.BaseProtocol) -> asyncio.Transport:
        """Raises OSError."""
        loop = asyncio.get_running_loop()
        if self.path:
            transport, _ = await loop.create_unix_connection(lambda: protocol, self.path)
        else:
            transport, _ = await loop.create_connection(lambda: protocol, LOOPBACK, self.port)
        return transport


@contextmanager
def private_socket() -> Iterator[PrivateSocket]:
    """For as long as this lasts. Raises AddressError."""
    if _FAMILY is None:
        yield PrivateSocket("", choose_port(LOOPBACK, wanted=0, kept=None))
        return
    with tempfile.TemporaryDirectory(prefix="helix-", ignore_cleanup_errors=True) as folder:
        yield PrivateSocket(str(Path(folder) / "stages"))  # 0700


def shared_with(stages: PrivateSocket, links: LinkAnswers) -> type[asyncio.Protocol]:
    """What uvicorn takes in place of its protocol for HTTP."""

    class SharedPort(_FirstBytes):
        """The protocol of one server; uvicorn makes one for each connection."""

        inner = stages
        answers = links

    return SharedPort


class _FirstBytes(asyncio.Protocol):
    """A connection of which nothing is known yet."""

    inner: PrivateSocket
    answers: LinkAnswers

    def __init__(self, *, server_state: Any, **of_http: Any) -> None:
        self._state = server_state
        self._of_http = of_http
        self._heard = b""
        self._transport: asyncio.Transport
        self._silent: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._silent = asyncio.get_running_loop().call_later(SILENT_S, transport.close)
        self._state.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._forget()

    def data_received(self, data: bytes) -> None:
        self._heard += data
        if MAGIC.startswith(self._heard) and len(self._heard) < len(MAGIC):
            return  # or HEAD of HTTP
        self._forget()
        if self._heard[0] == GREETING:
            relayed = _Relayed(self._transport, self._state.connections)
            self._transport.set_protocol(relayed)
            relayed.open(self.inner, self._heard)
        elif self._heard.startswith(MAGIC):
            self._hand_on(_Measured(self.answers, self._state.connections))
        else:
            make_http = cast(Callable[..., asyncio.Protocol], AutoHTTPProtocol)
            self._hand_on(make_http(server_state=self._state, **self._of_http))

    def _hand_on(self, protocol: asyncio.Protocol) -> None:
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(self._heard)

    def shutdown(self) -> None:
        """Called by uvicorn when it ends."""
        self._transport.close()

    def _forget(self) -> None:
        self._silent.cancel()
        self._state.connections.discard(self)


class _Measured(asyncio.StreamReaderProtocol):
    """A node's connection that measures the link to here."""

    def __init__(self, answers: LinkAnswers, connections: set[Any]) -> None:
        super().__init__(asyncio.StreamReader(limit=READ_AHEAD_BYTES), answers.accept)
        self._connections = connections
        connections.add(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._outer = cast(asyncio.Transport, transport)
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        super().connection_lost(error)

    def shutdown(self) -> None:
        """Called by uvicorn when it ends."""
        self._outer.abort()


class _Half(asyncio.Protocol):
    """One side of a connection that is handed on: what comes is written to the `other` side."""

    other: asyncio.Transport | None = None  # until that is open

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.resume_reading()


class _Inner(_Half):
    """The side at the private socket."""

    def connection_lost(self, error: Exception | None) -> None:
        if self.other is not None:
            self.other.abort()  # what waits to be sent there is of a session that has ended


class _Relayed(_Half):
    """A stage's side; the end of either is the end of both."""

    def __init__(self, transport: asyncio.Transport, connections: set[Any]) -> None:
        self._transport = transport
        self._connections = connections
        self._opening: asyncio.Task[None] | None = None
        connections.add(self)

    def open(self, to: PrivateSocket, first: bytes) -> None:
        self._transport.pause_reading()
        self._opening = asyncio.get_running_loop().create_task(self._open(to, first))

    async def _open(self, to: PrivateSocket, first: bytes) -> None:
        inner = _Inner()
        inner.other = self._transport
        try:
            self.other = await to.connect(inner)
        except OSError as error:
            logger.error("a stage's connection cannot be handed on: %s", error)
            self._transport.close()
            return
        if self._transport.is_closing():
            self.other.close()
            return
        self.other.write(first)
        self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        if self.other is not None:
            self.other.close()  # once it has read all that the stage said

    def shutdown(self) -> None:
        """Called by uvicorn when it ends: requests have, by then."""
        self._transport.abort()
