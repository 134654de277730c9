"""Where this process receives data frames: a host its peers can dial, and a port that is kept."""

import random
import time
from collections.abc import Callable

from runtime.protocol.addresses import Advertised, address_towards, endpoint_of, is_wildcard
from runtime.protocol.complaints import StartRefused
from runtime.protocol.ports import bind_once, hold, take_any_port

_PORT_WAIT_S = 5.0  # a stage whose agent was killed is gone sooner
_LOOK_AGAIN_S = 0.1


class AddressError(StartRefused):
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

    It is held until this process ends (`runtime.protocol.ports`); one that is `wanted` may be held
    by another, as it is the operator's to give. Waits a few seconds for a port that is in use, as
    the last run may still be leaving. Raises AddressError.
    """
    deadline_s = clock() + _PORT_WAIT_S
    while preferred := wanted or kept:
        try:
            bind_once(host, preferred)
            if hold(preferred) or wanted:
                return preferred
        except OSError as error:
            if wanted and clock() >= deadline_s:
                raise AddressError(
                    f"cannot receive on {host}:{wanted}: {error}; choose another --data-port"
                ) from error
        if clock() >= deadline_s:
            break
        sleep(_LOOK_AGAIN_S)
    try:
        return take_any_port(host, draw=draw)
    except OSError as error:
        raise _no_address(host, error) from error


def choose_host(given: str, *, server: str, advertised: Advertised | None) -> str:
    """Where to receive: the address that was given, else the one on the way to the `server`.

    One that others cannot dial needs an `advertised` one. Raises AddressError.
    """
    try:
        host = given or address_towards(server)
    except OSError as error:
        raise AddressError(
            f"no route leads to {server} ({error}), so this machine's address is not known; give "
            "it with --data-host"
        ) from error
    if is_wildcard(host) and advertised is None:
        raise AddressError(
            f"--data-host {host!r} is no address others can dial; give this machine's own, or "
            "beside it with --advertise the address they dial"
        )
    return host


def check_host(host: str) -> None:
    """That `host` is this machine's. Raises AddressError."""
    try:
        bind_once(host, 0)
    except OSError as error:
        raise _no_address(host, error) from error


def data_endpoint(host: str, port: int, advertised: Advertised | None = None) -> str:
    """As peers dial it."""
    if advertised is None:
        return endpoint_of(host, port)
    return endpoint_of(advertised.host, advertised.port or port)


def _no_address(host: str, error: OSError) -> AddressError:
    return AddressError(
        f"cannot receive on {host}: {error}; give --data-host an address of this machine"
    )
