"""The process between namespaces: a TUN device in each, a `ShapedPipe` from each to each other.

    python -m tests.shaped_links.relay MTU SEED NAMESPACE_A NAMESPACE_B ...

Says `ready` when the devices are up. Then every line on stdin is like {"a_to_b": {...}, "b_to_a":
{...}}, the fields of a `Shape` that change; the answer, once they hold, is a line with the counters
of all directions. Ends with stdin. Needs root.
"""

import contextlib
import ctypes
import dataclasses
import fcntl
import itertools
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from typing import Any

from tests.shaped_links.shaped_pipe import Shape, ShapedPipe

ADDRESSES = {"a": "10.77.0.1", "b": "10.77.0.2", "c": "10.77.0.3", "d": "10.77.0.4"}
DEVICE = "helix0"
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000
_PACKETS_AT_ONCE = 64

Direction = tuple[str, str]  # from a side to another


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
    for command in (
        f"ip -n {namespace} addr add {ADDRESSES[side]}/24 dev {DEVICE}",
        f"ip -n {namespace} link set {DEVICE} mtu {mtu} txqueuelen 4000 up",
    ):
        subprocess.run(command.split(), check=True, timeout=60)


def target_of(packet: bytes) -> str | None:
    """The side an IPv4 packet is for; None for what is for nobody here."""
    if len(packet) < 20 or packet[0] >> 4 != 4:
        return None
    return _SIDE_OF.get(packet[16:20])


_SIDE_OF = {socket.inet_aton(address): side for side, address in ADDRESSES.items()}


def relay(descriptors: dict[str, int], pipes: dict[Direction, ShapedPipe], mtu: int) -> None:
    """Until stdin ends."""
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
                    packet = os.read(descriptor, mtu + 64)
                    pipe = pipes.get((side, target_of(packet) or ""))
                    if pipe is not None:
                        pipe.push(packet, now_s=time.monotonic())
        for (_, target), pipe in pipes.items():
            for packet in pipe.pop_due(time.monotonic()):
                os.write(descriptors[target], packet)


def answer(changes: dict[str, dict[str, Any]], pipes: dict[Direction, ShapedPipe]) -> None:
    named = {f"{source}_to_{target}": pipe for (source, target), pipe in pipes.items()}
    for name, fields in changes.items():
        named[name].shape = dataclasses.replace(named[name].shape, **fields)
    counters = {name: dataclasses.asdict(pipe.counters) for name, pipe in named.items()}
    print(json.dumps(counters), flush=True)


def main(mtu: int, seed: int, *in_order: str) -> None:
    # What it delays must not depend on who else uses the processor.
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    namespaces = dict(zip(ADDRESSES, in_order, strict=False))
    descriptors = {side: open_tun(namespace) for side, namespace in namespaces.items()}
    for side, namespace in namespaces.items():
        configure(side, namespace, mtu)
    pipes = {
        direction: ShapedPipe(Shape(), seed=seed + number)
        for number, direction in enumerate(itertools.permutations(namespaces, 2))
    }
    print("ready", flush=True)
    relay(descriptors, pipes, mtu)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
