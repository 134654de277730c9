"""A connection of ZeroMQ's as Linux sees it: paced by TCP itself, asked what it delivers.

Elsewhere, and with a kernel that says too little (before 4.18), there are no looks and no pace.
"""

import contextlib
import socket
import struct
import sys
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from runtime.transport.link_pace import TcpLook

# Of what a connection was given, so much waits in the kernel at most; the rest waits in ZeroMQ.
_MOST_UNSENT_BYTES = 2**17
_SO_MAX_PACING_RATE = 47  # not in Python's `socket`
_UNPACED = 2**32 - 1  # as the kernel says it: no pace
# The fields of `struct tcp_info` that are used: packet size, packets under way, round trip in
# microseconds, window in packets, bytes that wait, and packets delivered.
_INFO = struct.Struct("16xI4xI40xI8xI60xI44xI")


def look_at(connection: socket.socket) -> TcpLook | None:
    """What TCP knows of `connection`; None where the kernel does not say it."""
    if sys.platform != "linux":
        return None
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
    except OSError:
        return None  # closed, or no connection of TCP's
    if len(info) < _INFO.size:
        return None
    packet_bytes, under_way, rtt_us, window, unsent_bytes, delivered_packets = _INFO.unpack(info)
    return TcpLook(
        delivered_bytes=delivered_packets * packet_bytes,
        unsent_bytes=unsent_bytes,
        rtt_s=rtt_us * 1e-6,
        packet_bytes=packet_bytes,
        is_held=under_way >= window,
    )


def set_pace(connection: socket.socket, bytes_per_s: float | None) -> None:
    """Have TCP send no faster from now on; None: as fast as it may."""
    if sys.platform == "linux":
        pace = _UNPACED if bytes_per_s is None else min(_UNPACED, max(1, int(bytes_per_s)))
        connection.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, struct.pack("I", pace))


class KernelLink:
    """Reads and paces one TCP connection in the kernel; the lanes' thread calls it.

    The connection of `dealer`, which is not connected yet, to `port`. For one thread, which
    calls `follow` when `monitor` is readable, and `close` before the dealer is closed.
    """

    def __init__(self, dealer: Any, *, port: int) -> None:
        self.monitor = dealer.get_monitor_socket(zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED)
        self._dealer = dealer
        self._port = port
        self._connection: socket.socket | None = None
        self._pace: int | None = None

    def follow(self) -> None:
        """The connection was made, or broke."""
        while self.monitor.poll(0):
            event = recv_monitor_message(self.monitor, zmq.NOBLOCK)
            self._forget()
            if event["event"] == zmq.EVENT_CONNECTED:
                self._take(event["value"])

    def look(self) -> TcpLook | None:
        """What TCP knows of the link; None if there is no connection, or it does not say."""
        return None if self._connection is None else look_at(self._connection)

    def pace(self, bytes_per_s: float | None) -> None:
        """Send no faster from now on."""
        pace = None if bytes_per_s is None else int(bytes_per_s)
        if self._connection is not None and pace != self._pace:
            self._pace = pace
            set_pace(self._connection, bytes_per_s)

    def close(self) -> None:
        """Let go of the connection."""
        self._dealer.disable_monitor()
        self.monitor.close(linger=0)
        self._forget()

    def _take(self, fd: int) -> None:
        """`fd` is libzmq's, and may be closed or another's by now: a copy is kept."""
        with contextlib.suppress(OSError):
            copy = socket.socket(fileno=socket.dup(fd))
            try:
                is_ours = copy.getpeername()[1] == self._port
                if is_ours and hasattr(socket, "TCP_NOTSENT_LOWAT"):
                    copy.setsockopt(
                        socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MOST_UNSENT_BYTES
                    )
            except (OSError, IndexError):
                is_ours = False
            if is_ours:
                self._connection = copy
            else:
                copy.close()

    def _forget(self) -> None:
        """A copy that stays open would hide from the peer that libzmq has closed the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self._pace = None
