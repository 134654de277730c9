"""The web's address: bound once by the supervisor, so that a web process that is started again
finds the connections that came meanwhile, and no other program can take the port."""

import errno
import socket

from helixweb.command_line.failures import CommandFailed


def listen(host: str, port: int, *, option: str) -> socket.socket:
    """Listening on one address; `option` is what chooses another port. Raises CommandFailed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise CommandFailed(
            f"cannot listen on {host}:{port}: {error.strerror or error}; {_remedy(error, option)}"
        ) from error


def check_free(host: str, port: int, *, option: str) -> None:
    """Check that a child can listen there. Raises CommandFailed."""
    listen(host, port, option=option).close()


_REMEDIES = {
    errno.EADDRINUSE: "stop what uses it, or choose another port with {}",
    errno.EACCES: "ports below 1024 are for root; choose another with {}",
    errno.EADDRNOTAVAIL: "give an address of this machine, 0.0.0.0 for all of them, or none for "
    "loopback only",
}


def _remedy(error: OSError, option: str) -> str:
    other = "choose another address or port ({})"
    return _REMEDIES.get(error.errno or 0, other).format(option)
