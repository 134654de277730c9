"""What a shaped link does, seen by plain TCP; the two ends of a self-check.

    python -m tests.shaped_links.probe serve ADDRESS
    python -m tests.shaped_links.probe dial ADDRESS BYTES

The dialling end prints {"round_trip_s", "transfer_s", "congestion_control"}: the shortest of ten
round trips of one byte, and how long BYTES took one way until the last was confirmed.
"""

import json
import socket
import sys
import time

PORT = 7788
_TIMEOUT_S = 60.0


def serve(address: str) -> None:
    """Echo ten bytes, then take a transfer (its length first, 8 bytes), confirm by one byte."""
    with socket.create_server((address, PORT)) as listening:
        print("ready", flush=True)
        listening.settimeout(_TIMEOUT_S)
        connection, _ = listening.accept()
        with connection:
            connection.settimeout(_TIMEOUT_S)
            for _ in range(10):
                connection.sendall(connection.recv(1))
            left = int.from_bytes(connection.recv(8), "little")
            while left > 0:
                left -= len(connection.recv(min(left, 2**16)))
            connection.sendall(b"!")


def dial(address: str, size: int) -> None:
    with socket.create_connection((address, PORT), timeout=_TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        round_trips = []
        for _ in range(10):
            began = time.monotonic()
            connection.sendall(b"?")
            connection.recv(1)
            round_trips.append(time.monotonic() - began)
        began = time.monotonic()
        connection.sendall(size.to_bytes(8, "little") + bytes(size))
        connection.recv(1)
        control = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        print(
            json.dumps(
                {
                    "round_trip_s": min(round_trips),
                    "transfer_s": time.monotonic() - began,
                    "congestion_control": control.rstrip(b"\0").decode(),
                }
            )
        )


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        dial(sys.argv[2], int(sys.argv[3]))
