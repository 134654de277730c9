"""Where parts of one process reach each other by sockets that nobody else can open: files in a
folder of their own, or, where a system has none such, ports of loopback."""

import asyncio
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runtime.http_process import listen
from runtime.instances.command_lines import LOOPBACK
from runtime.membership.data_address import choose_port, data_endpoint

_FAMILY: socket.AddressFamily | None = getattr(socket, "AF_UNIX", None)


@dataclass(frozen=True, slots=True)
class PrivateDoor:
    """One place. `path` is a Unix socket; empty where there are none, and `port` counts."""

    path: str
    port: int = 0

    @property
    def zmq_endpoint(self) -> str:
        """For a socket of ZeroMQ to bind."""
        return f"ipc://{self.path}" if self.path else data_endpoint(LOOPBACK, self.port)

    @property
    def url(self) -> str:
        """For HTTP, beside the `path`."""
        return "http://pipelines" if self.path else f"http://{LOOPBACK}:{self.port}"

    def listen(self) -> socket.socket:
        """Raises CannotListen."""
        if not self.path or _FAMILY is None:
            return listen(LOOPBACK, self.port)
        made = socket.socket(_FAMILY, socket.SOCK_STREAM)
        made.bind(self.path)
        made.listen(socket.SOMAXCONN)
        return made

    async def connect(self, protocol: asyncio.BaseProtocol) -> asyncio.Transport:
        """Raises OSError."""
        loop = asyncio.get_running_loop()
        if self.path:
            transport, _ = await loop.create_unix_connection(lambda: protocol, self.path)
        else:
            transport, _ = await loop.create_connection(lambda: protocol, LOOPBACK, self.port)
        return transport


@contextmanager
def private_doors(*names: str) -> Iterator[tuple[PrivateDoor, ...]]:
    """One for each name, for as long as this lasts. Raises AddressError."""
    if _FAMILY is None:
        yield tuple(PrivateDoor("", choose_port(LOOPBACK, wanted=0, kept=None)) for _ in names)
        return
    with tempfile.TemporaryDirectory(prefix="helix-", ignore_cleanup_errors=True) as folder:
        yield tuple(PrivateDoor(str(Path(folder) / name)) for name in names)  # 0700
