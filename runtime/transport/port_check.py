"""Checks whether a process still listens where a connection broke, by one TCP connection.

Nothing is sent on it but the first byte of a ZeroMQ greeting. A ZeroMQ socket greets every
connection, and a port that it shares with HTTP those that begin so. Refused, or closed without a
greeting: the process has ended. No greeting: it is frozen, or the link is cut, which heartbeats
find out.
"""

import socket

_BEGINNING = b"\xff"


def listens(address: tuple[str, int], *, within_s: float) -> bool | None:
    """False if no process listens at `address`, which is numeric; None if it cannot be known.

    Waits up to `within_s` for the connection, and as long for the greeting.
    """
    try:
        with socket.create_connection(address, timeout=within_s) as connection:
            connection.sendall(_BEGINNING)
            return bool(connection.recv(1))
    except (ConnectionRefusedError, ConnectionResetError, BrokenPipeError):
        return False
    except OSError:
        return None
