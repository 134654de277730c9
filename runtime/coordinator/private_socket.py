"""A socket that no other process can open, where this one reads what stages send.

It is a file in a folder of its own or, on systems without such sockets, a port of loopback.
"""

import asyncio
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runtime.instances.command_lines import LOOPBACK
from runtime.membership.data_address import choose_port, data_endpoint

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
