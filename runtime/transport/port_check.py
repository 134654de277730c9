"""Checks whether a process still listens where a connection broke, by one TCP connection.

Nothing is sent on it but the first byte of a ZeroMQ greeting. A ZeroMQ socket greets every
connection, and a port that it shares with HTTP those that begin so. Refused, or closed without a
greeting: the process has ended. No greeting: it is frozen, or the link is cut, which heartbeats
find out.
"""

import contextlib
import errno
import socket
from enum import Enum

_BEGINNING = b"\xff"
_REFUSED = (errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE)


class Answer(Enum):
    """The result of a check."""

    NONE_LISTENS = "none listens"
    LISTENS = "listens"
    UNKNOWN = "unknown"


class PortCheck:
    """Finds out whether a port still listens; the heartbeat thread calls it.

    Never blocks: call `answer` whenever `fd` is ready to be read or written.
    """

    def __init__(self, address: tuple[str, int], family: socket.AddressFamily) -> None:
        """`address` is numeric, so that no name is looked up."""
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._is_connected = False
        self._failed = self._socket.connect_ex(address)

    @property
    def fd(self) -> int:
        """To be polled."""
        return self._socket.fileno()

    @property
    def is_connected(self) -> bool:
        """Whether it now waits for the greeting, which comes to be read."""
        return self._is_connected

    def answer(self) -> Answer | None:
        """None: not yet."""
        if self._failed == errno.EINPROGRESS:
            with contextlib.suppress(OSError):
                self._socket.getpeername()
                self._failed = 0
            if self._failed:
                failed = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                self._failed = failed or self._failed
        if self._failed == errno.EINPROGRESS:
            return None
        if self._failed:
            return Answer.NONE_LISTENS if self._failed in _REFUSED else Answer.UNKNOWN
        try:
            if not self._is_connected:
                self._is_connected = True
                self._socket.send(_BEGINNING)
            return Answer.LISTENS if self._socket.recv(1) else Answer.NONE_LISTENS
        except BlockingIOError:
            return None
        except OSError as error:
            return Answer.NONE_LISTENS if error.errno in _REFUSED else Answer.UNKNOWN

    def close(self) -> None:
        self._socket.close()
