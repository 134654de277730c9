"""Where this process receives data frames: a host its peers can dial, and a port that is kept."""

import contextlib
import random
import socket
import time
from collections.abc import Callable

_PORT_WAIT_S = 5.0  # a stage whose agent was killed is gone sooner
_LOOK_AGAIN_S = 0.1
# A stage binds its port whenever it is started. Linux, macOS and Windows give none of these to
# whoever asks for any, so that no connection of another process is there first.
_PORTS = range(20_000, 30_000)
_DRAWS = 50


class AddressError(Exception):
    """A host or port that cannot be used; the message names it and the remedy."""


def choose_port(
    host: str,
    *,
    wanted: int,
    kept: int | None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    draw: Callable[[range], int] = random.choice,
) -> int:
    """`wanted` if not 0, else the one `kept` from the last run if it is free, else a free one.

    Waits a few seconds for a port that is in use, as the last run may still be leaving.
    Raises AddressError.
    """
    _check_dialled(host)
    preferred = wanted or kept
    if preferred is not None:
        deadline_s = clock() + _PORT_WAIT_S
        while True:
            try:
                return _bind_once(host, preferred)
            except OSError as error:
                if clock() < deadline_s:
                    sleep(_LOOK_AGAIN_S)
                elif wanted:
                    raise AddressError(
                        f"cannot receive on {host}:{wanted}: {error}; choose another --data-port"
                    ) from error
                else:
                    break
    for _ in range(_DRAWS):
        with contextlib.suppress(OSError):
            return _bind_once(host, draw(_PORTS))
    return _bind_any(host)


def check_host(host: str) -> None:
    """That peers can dial `host` and it is this machine's. Raises AddressError."""
    _check_dialled(host)
    _bind_any(host)


def data_endpoint(host: str, port: int) -> str:
    """As peers dial it."""
    return f"tcp://{host}:{port}"


def _check_dialled(host: str) -> None:
    if host in ("0.0.0.0", "::", "*", ""):  # noqa: S104 - refused, not bound
        raise AddressError(
            f"--data-host {host!r} is no address others can dial; give this machine's own"
        )


def _bind_any(host: str) -> int:
    try:
        return _bind_once(host, 0)
    except OSError as error:
        raise AddressError(
            f"cannot receive on {host}: {error}; give --data-host an address of this machine"
        ) from error


def _bind_once(host: str, port: int) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        bound: int = probe.getsockname()[1]
        return bound
