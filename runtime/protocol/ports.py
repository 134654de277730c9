"""How our processes on one machine keep out of each other's ports.

A port is often bound later than it is chosen, by a child, and again and again. Whoever has chosen
one therefore holds its number until it ends, as one of UDP at loopback: nothing here speaks that,
no file is left behind, and the system gives it back whatever ends the process.
"""

import atexit
import random
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager

# Linux, macOS and Windows give none of these to whoever asks for any, so that no connection of
# another process is there first.
PORTS = range(20_000, 30_000)
_DRAWS = 50
_HOLD_AT = "127.0.0.1"
_TURN_PORT = 19_999

_held: dict[int, socket.socket] = {}


def take_any_port(host: str, *, draw: Callable[[range], int] = random.choice) -> int:
    """A port that is free at `host` and that nobody holds, this process included; held from now on.

    Raises OSError where nothing can be bound.
    """
    for _ in range(_DRAWS):
        port = draw(PORTS)
        if port not in _held and is_free(host, port) and hold(port):
            return port
    port = bind_once(host, 0)
    hold(port)
    return port


def is_free(host: str, port: int) -> bool:
    """Whether it can be bound now."""
    try:
        bind_once(host, port)
    except OSError:
        return False
    return True


def hold(port: int) -> bool:
    """Until this process ends. False where another process holds it."""
    if port in _held:
        return True
    holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        holder.bind((_HOLD_AT, port))
    except OSError:
        holder.close()
        return False
    _held[port] = holder
    atexit.register(holder.close)
    return True


def is_held(port: int) -> bool:
    """True if another process of this machine holds the number."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((_HOLD_AT, port))
        except OSError:
            return port not in _held
    return False


@contextmanager
def machine_turn() -> Generator[bool]:
    """While inside with True, no other process of this machine gets True: one measures links."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        try:
            holder.bind((_HOLD_AT, _TURN_PORT))
        except OSError:
            yield False
        else:
            yield True


def bind_once(host: str, port: int) -> int:
    """The port, which is free again afterwards; any for 0. Raises OSError where it is not free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        bound: int = probe.getsockname()[1]
        return bound
