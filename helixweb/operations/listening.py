"""The web's address: bound once by the supervisor, so that a web process that is started again
finds whoever knocked meanwhile waiting, and nobody else can take the port."""

import argparse
import errno
import socket


class CannotListen(Exception):
    """The message names the address, why not, and what to do."""


def port(text: str) -> int:
    """Of a command line."""
    if text.isdecimal() and len(text) < 6 and 1 <= int(text) <= 65535:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no port; give 1 to 65535")


def listen(host: str, port: int, *, option: str) -> socket.socket:
    """Listening on one address; `option` is what chooses another port. Raises CannotListen."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise CannotListen(
            f"cannot listen on {host}:{port}: {error.strerror or error}; {_remedy(error, option)}"
        ) from error


def check_free(host: str, port: int, *, option: str) -> None:
    """That a child could listen there. Raises CannotListen."""
    listen(host, port, option=option).close()


def _remedy(error: OSError, option: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"stop what uses it, or choose another port with {option}"
    if error.errno == errno.EACCES:
        return f"ports below 1024 are for root; choose another with {option}"
    if error.errno == errno.EADDRNOTAVAIL:
        return "give an address of this machine, 0.0.0.0 for all of them, or none for loopback only"
    return f"choose another address or port ({option})"
