"""Network namespaces joined by links that are as slow as wanted; for tests and benchmarks.

`relayed_link` shapes by our own relay between two TUN devices: rate, delay, loss, queue, partition,
all changeable while traffic flows; `relayed_mesh` does so between up to four. `tbf_link` shapes by
the kernel's token bucket over a veth pair: rate only, but no process of ours in between; `routed`
joins any number of machines so. `cabled` joins sides with addresses of one's choice and shapes
nothing; `behind_nat` adds one that only dials out. All need root; sides are "a", "b" and so on.
"""

import ctypes
import dataclasses
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import Literal, TypeVar, get_args

from tests.installed import require
from tests.shaped_links.relay import ADDRESSES
from tests.shaped_links.shaped_pipe import Shape

Side = Literal["a", "b", "c", "d", "e"]
SideT = TypeVar("SideT", bound=str)
_SIDES: tuple[Side, ...] = get_args(Side)
REPOSITORY = Path(__file__).parents[2]
_TIMEOUT_S = 60.0
_numbers = itertools.count()


class ShapingFailed(RuntimeError):
    """The link could not be set up; the message holds what the failing command said."""


def missing_for_shaping() -> str:
    """Why links cannot be shaped here; empty if they can."""
    if os.geteuid() != 0:
        return "shaped links need root"
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "shaped links need ip and tc (apt-get install iproute2)"
    if not Path("/dev/net/tun").exists():
        return "shaped links need /dev/net/tun"
    return ""


def require_shaping() -> None:
    """Skip the test where links cannot be shaped, or fail it where HELIX_TEST_REQUIRE has
    `shaped`."""
    missing = missing_for_shaping()
    require("shaped", found=not missing, remedy=missing)


def missing_for_nat() -> str:
    """Why no side can be behind NAT here; empty if one can."""
    if shutil.which("nft") is None:
        return "NAT needs nft (apt-get install nftables)"
    with _namespaces("reno", _SIDES[:1]) as names:
        try:
            _masquerade(names["a"])
        except ShapingFailed as error:
            return f"NAT needs a kernel that has it: {error}"
    return ""


def require_nat() -> None:
    """Skip the test where no side can be behind NAT, or fail it where HELIX_TEST_REQUIRE has
    `nat`."""
    missing = missing_for_nat()
    require("nat", found=not missing, remedy=missing)


def available_congestion_controls() -> tuple[str, ...]:
    """Those a namespace may choose; a module the administrator has not allowed is left out."""
    text = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text()
    return tuple(text.split())


class Namespaces:
    """Namespaces with TCP's congestion control pinned."""

    def __init__(self, names: dict[Side, str]) -> None:
        self.names = names

    def address(self, side: Side) -> str:
        return ADDRESSES[side]

    @contextmanager
    def inside(self, side: Side) -> Iterator[None]:
        """This thread, its connections and what it starts are in the namespace of a side."""
        with Path("/proc/thread-self/ns/net").open() as before:
            enter(self.names[side])
            try:
                yield
            finally:
                _enter(before.fileno())

    def popen(
        self, side: Side, command: Sequence[str], *, stdin: int | None = subprocess.PIPE
    ) -> "subprocess.Popen[str]":
        """Run a command inside a side, from the repository's root; stdin and stdout are pipes."""
        return subprocess.Popen(
            ["ip", "netns", "exec", self.names[side], *command],
            stdin=stdin,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )


class RelayedLink(Namespaces):
    """`change` reshapes it; answers count packets since the start."""

    def __init__(self, names: dict[Side, str], relay: "subprocess.Popen[str]") -> None:
        super().__init__(names)
        self._relay = relay

    def change(self, **directions: dict[str, object]) -> dict[str, dict[str, float]]:
        """Set fields of the `Shape`s of directions such as `a_to_b`; returns when they hold, with
        the counters of all."""
        stdin, stdout = self._relay.stdin, self._relay.stdout
        if stdin is None or stdout is None:
            raise ShapingFailed("the relay has no pipes")
        stdin.write(json.dumps(directions) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise ShapingFailed(f"the relay ended with status {self._relay.wait(_TIMEOUT_S)}")
        counters: dict[str, dict[str, float]] = json.loads(line)
        return counters


@contextmanager
def relayed_link(
    *,
    a_to_b: Shape,
    b_to_a: Shape,
    congestion_control: str = "reno",
    mtu: int = 9000,
    seed: int = 1,
) -> Iterator[RelayedLink]:
    """Raises ShapingFailed when it cannot be had."""
    shapes = {"a_to_b": a_to_b, "b_to_a": b_to_a}
    with _relayed(2, shapes, congestion_control, mtu=mtu, seed=seed) as link:
        yield link


@contextmanager
def relayed_mesh(
    sides: int, shape: Shape, *, congestion_control: str = "reno", mtu: int = 9000, seed: int = 1
) -> Iterator[RelayedLink]:
    """A link of that shape from each side to each other. Raises ShapingFailed."""
    shapes = {
        f"{source}_to_{target}": shape
        for source, target in itertools.permutations(_SIDES[:sides], 2)
    }
    with _relayed(sides, shapes, congestion_control, mtu=mtu, seed=seed) as link:
        yield link


@contextmanager
def _relayed(
    sides: int, shapes: Mapping[str, Shape], congestion_control: str, *, mtu: int, seed: int
) -> Iterator[RelayedLink]:
    with _namespaces(congestion_control, _SIDES[:sides]) as names:
        relay = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.shaped_links.relay"),
                *(str(mtu), str(seed), *names.values()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )
        with relay:
            try:
                if relay.stdout is None or relay.stdout.readline() != "ready\n":
                    raise ShapingFailed("the relay did not start; its stderr says why")
                link = RelayedLink(names, relay)
                link.change(**{name: dataclasses.asdict(shape) for name, shape in shapes.items()})
                yield link
            finally:
                relay.kill()


@contextmanager
def tbf_link(*, rate_bytes_per_s: float, congestion_control: str = "reno") -> Iterator[Namespaces]:
    """The kernel's token bucket on both sides. Raises ShapingFailed when it cannot be had."""
    with _namespaces(congestion_control, _SIDES[:2]) as names:
        _run(f"ip link add helix0 netns {names['a']} type veth peer name helix0 netns {names['b']}")
        for side, name in names.items():
            _run(f"ip -n {name} addr add {ADDRESSES[side]}/24 dev helix0")
            _run(f"ip -n {name} link set helix0 up")
            _shape(name, "helix0", rate_bytes_per_s)
        yield Namespaces(names)


@contextmanager
def routed(machines: int, *, rate_bytes_per_s: float) -> Iterator[list[str]]:
    """Namespaces of a router, at 10.98.0.1, and of so many machines, at 10.98.0.2 and on, each with
    a link of this rate to the router. Raises ShapingFailed.

    Not of a switch: all would resolve the addresses of all, for which a kernel has no room.
    """
    gateway = IPv4Address("10.98.0.1")
    with _namespaces("reno", map(str, range(machines + 1))) as names:
        router = names["0"]
        _run(f"ip -n {router} addr add {gateway}/32 dev lo")
        _run(f"ip netns exec {router} sysctl -qw net.ipv4.ip_forward=1")
        for number in range(1, machines + 1):
            name, link = names[str(number)], f"to-{number}"
            _run(f"ip link add {link} netns {router} type veth peer name out netns {name}")
            _run(f"ip -n {name} addr add {gateway + number}/32 dev out")
            _run(f"ip -n {router} link set {link} up")
            _run(f"ip -n {name} link set out up")
            _run(f"ip -n {router} route add {gateway + number} dev {link}")
            _run(f"ip -n {name} route add {gateway} dev out")
            _run(f"ip -n {name} route add default via {gateway}")
            _shape(name, "out", rate_bytes_per_s)
            _shape(router, link, rate_bytes_per_s)
        yield list(names.values())


@contextmanager
def cabled(addresses: Mapping[Side, str]) -> Iterator[Namespaces]:
    """A side for each address, and a cable of the kernel's between every two. Raises
    ShapingFailed."""
    with _namespaces("reno", addresses) as names:
        for one, other in itertools.combinations(addresses, 2):
            _run(
                f"ip link add to-{other} netns {names[one]} "
                f"type veth peer name to-{one} netns {names[other]}"
            )
            for here, there in ((one, other), (other, one)):
                within, own = f"ip -n {names[here]}", addresses[here]
                _run(f"{within} addr add {own}/32 dev to-{there}")
                _run(f"{within} link set to-{there} up")
                _run(f"{within} route add {addresses[there]} dev to-{there} src {own}")
        yield Namespaces(names)


@contextmanager
def behind_nat(
    network: Namespaces, side: Side, *, router: Side, address: IPv4Interface
) -> Iterator[None]:
    """Add a side with a private address, for which `router` dials all others as itself.

    Raises ShapingFailed.
    """
    with _namespaces("reno", (side,)) as added:
        within, gateway = network.names[router], address.network[1]
        _run(f"ip link add out netns {added[side]} type veth peer name to-{side} netns {within}")
        for name, device, own in (
            (added[side], "out", address),
            (within, f"to-{side}", f"{gateway}/{address.network.prefixlen}"),
        ):
            _run(f"ip -n {name} addr add {own} dev {device}")
            _run(f"ip -n {name} link set {device} up")
        _run(f"ip -n {added[side]} route add default via {gateway}")
        _run(f"ip netns exec {within} sysctl -qw net.ipv4.ip_forward=1")
        _masquerade(within)
        network.names[side] = added[side]
        try:
            yield
        finally:
            del network.names[side]


def _masquerade(name: str) -> None:
    """What this namespace forwards bears its own address."""
    within = f"ip netns exec {name} nft"
    _run(f"{within} add table ip nat")
    _run(f"{within} add chain ip nat out {{ type nat hook postrouting priority 100 ; }}")
    _run(f"{within} add rule ip nat out masquerade")


@contextmanager
def _namespaces(congestion_control: str, sides: Iterable[SideT]) -> Iterator[dict[SideT, str]]:
    available = available_congestion_controls()
    if congestion_control not in available:
        raise ShapingFailed(
            f"{congestion_control!r} is not allowed here; choose of {', '.join(available)}"
        )
    number = next(_numbers)
    names = {side: f"helix-{os.getpid()}-{number}-{side}" for side in sides}
    with ExitStack() as closing:
        for name in names.values():
            _run(f"ip netns add {name}")
            closing.callback(_run, f"ip netns delete {name}")
            _run(f"ip -n {name} link set lo up")
            _run(
                f"ip netns exec {name} sysctl -qw "
                f"net.ipv4.tcp_congestion_control={congestion_control}"
            )
        yield names


def _shape(name: str, device: str, rate_bytes_per_s: float) -> None:
    """What leaves by this device of the namespace."""
    # what goes between two of the kernel's ticks, or the bucket is slower than asked for
    burst_bytes = max(4_000, round(rate_bytes_per_s * 0.002))
    _run(
        f"tc -n {name} qdisc add dev {device} root tbf "
        f"rate {rate_bytes_per_s * 8:.0f}bit burst {burst_bytes} latency 400ms"
    )


def enter(name: str) -> None:
    """Have this thread, its connections and what it starts be in the namespace."""
    with Path("/run/netns", name).open() as namespace:
        _enter(namespace.fileno())


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, 0) != 0:
        raise ShapingFailed(os.strerror(ctypes.get_errno()))


def _run(command: str) -> None:
    done = subprocess.run(
        command.split(), capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise ShapingFailed(f"{command}: {done.stderr.strip()}")
