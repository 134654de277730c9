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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from runtime.coordinator.options import Options
from runtime.instances.command_lines import LOOPBACK
from runtime.link_measuring import MAGIC, READ_AHEAD_BYTES, LinkAnswers
from runtime.membership.data_address import check_host, choose_host, choose_port, data_endpoint
from runtime.protocol.addresses import bracketed, is_wildcard
from runtime.protocol.data_security import DataSecurity

_FAMILY: socket.AddressFamily | None = getattr(socket, "AF_UNIX", None)


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


logger = logging.getLogger(__name__)

GREETING = 0xFF  # the first byte of ZMTP, all versions since 2.0
SILENT_S = 30.0  # a connection on which nothing comes for so long is closed


def with_hosts(options: Options) -> Options:
    """`options` with the addresses for chat clients and stages that follow from --server.

    Raises AddressError.
    """
    host = options.host or choose_host("", server=options.server, advertised=None)
    data_host = choose_host(
        options.data_host or ("" if is_wildcard(host) else host),
        server=options.server,
        advertised=options.advertise,
    )
    return replace(options, host=host, data_host=data_host)


def clients_url(options: Options, port: int) -> str:
    """Where chat clients reach the coordinator, unless an operator knows better."""
    host = options.host
    if is_wildcard(host):
        host = options.data_host if options.advertise is None else options.advertise.host
    return options.public_url or f"http://{bracketed(host)}:{port}"


def choose_data_port(options: Options, *, clients_port: int, kept: int | None) -> tuple[int, bool]:
    """The port for stages, and whether it is shared with chat clients, as wherever it can be.

    That is: where no other is wanted, or known to stages from earlier starts; clients are listened
    to at the same address and a port that stays; and who sends proves who it is by a secret.
    Raises AddressError.
    """
    is_of_all = is_wildcard(options.host) and (":" in options.host) == (":" in options.data_host)
    is_one_address = options.host == options.data_host or is_of_all
    is_proven = options.data_security is DataSecurity.CURVE
    may_share = is_one_address and is_proven and options.port != 0
    preferred = options.data_port or kept or clients_port
    if not may_share or preferred != clients_port:
        return choose_port(options.data_host, wanted=options.data_port, kept=kept), False
    check_host(options.data_host)
    return clients_port, True


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
