"""The process between two namespaces: two TUN devices, a `ShapedPipe` each way.

    python -m tests.shaped_links.relay NAMESPACE_A NAMESPACE_B MTU SEED

Says `ready` when both devices are up. Then every line on stdin is {"a_to_b": {...}, "b_to_a":
{...}}, the fields of a `Shape` that change; the answer, once they hold, is a line with the counters
of both directions. Ends with stdin. Needs root.
"""

import contextlib
import ctypes
import dataclasses
import fcntl
import json
import os
import select
import struct
import subprocess
import sys
import time
from typing import Any

from tests.shaped_links.shaped_pipe import Shape, ShapedPipe

ADDRESSES = {"a": "10.77.0.1", "b": "10.77.0.2"}
DEVICE = "helix0"
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000
_PACKETS_AT_ONCE = 64


def open_tun(namespace: str) -> int:
    """A TUN device inside `namespace`; the descriptor works from anywhere afterwards."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}") as inside:
        if libc.setns(inside.fileno(), _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"setns({namespace}): {os.strerror(number)}")
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    request = struct.pack("16sH22x", DEVICE.encode(), _IFF_TUN | _IFF_NO_PI)
    fcntl.ioctl(descriptor, _TUNSETIFF, request)
    return descriptor


def configure(side: str, namespace: str, mtu: int) -> None:
    peer = ADDRESSES["b" if side == "a" else "a"]
    for command in (
        f"ip -n {namespace} addr add {ADDRESSES[side]} peer {peer} dev {DEVICE}",
        f"ip -n {namespace} link set {DEVICE} mtu {mtu} txqueuelen 4000 up",
    ):
        subprocess.run(command.split(), check=True, timeout=20)


def relay(descriptors: dict[str, int], pipes: dict[str, ShapedPipe], mtu: int) -> None:
    """Until stdin ends. `pipes` are by the side that sends."""
    far = {"a": descriptors["b"], "b": descriptors["a"]}
    commands = b""
    poller = select.poll()
    side_of = {descriptor: side for side, descriptor in descriptors.items()}
    for descriptor in (*side_of, sys.stdin.fileno()):
        poller.register(descriptor, select.POLLIN)
    while True:
        due = [moment for pipe in pipes.values() if (moment := pipe.next_s()) is not None]
        # poll rounds up to whole milliseconds: look a little too often rather than too late
        wait_s = None if not due else max(0.0, min(due) - time.monotonic() - 0.0005)
        for descriptor, _ in poller.poll(None if wait_s is None else wait_s * 1000):
            if descriptor == sys.stdin.fileno():
                read = os.read(descriptor, 65536)
                if not read:
                    return
                *lines, commands = (commands + read).split(b"\n")
                for line in lines:
                    answer(json.loads(line), pipes)
                continue
            side = side_of[descriptor]
            with contextlib.suppress(BlockingIOError):
                for _ in range(_PACKETS_AT_ONCE):
                    pipes[side].push(os.read(descriptor, mtu + 64), now_s=time.monotonic())
        for side, pipe in pipes.items():
            for packet in pipe.pop_due(time.monotonic()):
                os.write(far[side], packet)


def answer(changes: dict[str, dict[str, Any]], pipes: dict[str, ShapedPipe]) -> None:
    for direction, side in (("a_to_b", "a"), ("b_to_a", "b")):
        pipes[side].shape = dataclasses.replace(pipes[side].shape, **changes.get(direction, {}))
    counters = {
        "a_to_b": dataclasses.asdict(pipes["a"].counters),
        "b_to_a": dataclasses.asdict(pipes["b"].counters),
    }
    print(json.dumps(counters), flush=True)


def main(namespace_a: str, namespace_b: str, mtu: int, seed: int) -> None:
    # What it delays must not depend on who else uses the processor.
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    namespaces = {"a": namespace_a, "b": namespace_b}
    descriptors = {side: open_tun(namespace) for side, namespace in namespaces.items()}
    for side, namespace in namespaces.items():
        configure(side, namespace, mtu)
    pipes = {"a": ShapedPipe(Shape(), seed=seed), "b": ShapedPipe(Shape(), seed=seed + 1)}
    print("ready", flush=True)
    relay(descriptors, pipes, mtu)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
