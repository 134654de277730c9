"""Real processes and sockets: one that ends, freezes or hangs is seen, and seen again when back."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from runtime.protocol.control import PeerAddress
from runtime.protocol.data_security import DataSecurity
from runtime.transport.heartbeat_monitor import HeartbeatMonitor
from runtime.transport.heartbeats import Loss, PeerEvent
from runtime.transport.zmq_sockets import (
    HEARTBEAT_INTERVAL_MS,
    KeyPair,
    receiving_socket,
    sending_socket,
)
from runtime.transport.zmq_transport import AsyncZmqTransport, ZmqTransport
from tests.runtime.tcp_relay import Relay

LOOPBACK = "tcp://127.0.0.1:0"
PATIENCE_S = 90.0  # a bound on hanging, not a measurement
WATCHER = KeyPair.generate()


class Watching:
    """One who watches, and what it has seen so far."""

    def __init__(self, watch: HeartbeatMonitor) -> None:
        self._watch = watch
        self.seen: list[PeerEvent] = []

    def follow(self, *peers: PeerAddress) -> None:
        self._watch.follow({peer.name: peer for peer in peers})

    def until(self, count: int) -> None:
        """So many events, or more: a busy machine makes some of its own."""
        deadline_s = time.monotonic() + PATIENCE_S
        while len(self.seen) < count:
            assert time.monotonic() < deadline_s, f"no news after {self.seen}"
            self.seen += self._watch.take()
            time.sleep(0.01)

    def meets(self, *peers: str) -> None:
        """The first that is seen of each is that it is there."""
        first: dict[str, PeerEvent] = {}
        while first.keys() != set(peers):
            self.until(len(self.seen) + 1)
            first = {peer_event.peer: peer_event for peer_event in reversed(self.seen)}
        assert all((one.loss, one.silent_s) == (None, 0.0) for one in first.values()), self.seen

    def until_last_is(self, loss: Loss | None, *, of: str = "peer") -> None:
        """The latest event of that peer; on a busy machine others may come before it."""
        self.seen += self._watch.take()
        while self._last(of) is not loss:
            self.until(len(self.seen) + 1)

    def _last(self, peer: str) -> Loss | None:
        return [peer_event.loss for peer_event in self.seen if peer_event.peer == peer][-1]


@pytest.fixture
def watching() -> Iterator[Watching]:
    transport = ZmqTransport(name="watcher", bind=LOOPBACK, keys=WATCHER)
    yield Watching(transport.watch())
    transport.close()


class PeerProcess:
    """`detection_peer.py`."""

    def __init__(self, directory: Path) -> None:
        key_file = directory / "peer.key"
        keys = KeyPair.load_or_create(key_file)
        self.process = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("detection_peer.py")),
                str(key_file),
                WATCHER.public_key,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.getcwd()},
        )
        assert self.process.stdout is not None
        endpoint = self.process.stdout.readline().strip()
        self.address = PeerAddress(name="peer", endpoint=endpoint, public_key=keys.public_key)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], PeerProcess]]:
    started: list[PeerProcess] = []

    def start_one() -> PeerProcess:
        started.append(PeerProcess(tmp_path))
        return started[-1]

    yield start_one
    for peer in started:
        peer.end()


@pytest.mark.processes
def test_a_killed_process_is_seen_to_have_ended_and_one_that_freezes_to_be_silent(
    watching: Watching, start: Callable[[], PeerProcess]
) -> None:
    peer = start()
    watching.follow(peer.address)
    watching.meets("peer")
    watching.until_last_is(None)
    peer.process.send_signal(signal.SIGSTOP)
    watching.until_last_is(Loss.SILENT)
    peer.process.send_signal(signal.SIGCONT)
    watching.until_last_is(None)
    peer.process.kill()
    watching.until_last_is(Loss.ENDED)
    assert all(peer_event.silent_s > 0.0 for peer_event in watching.seen[1:])


@pytest.mark.processes
def test_a_process_that_hangs_is_told_from_one_that_waits(
    watching: Watching, start: Callable[[], PeerProcess]
) -> None:
    peer = start()
    watching.follow(peer.address)
    watching.meets("peer")
    watching.until_last_is(None)
    peer.process.send_signal(signal.SIGUSR1)
    watching.until_last_is(Loss.HANGS)
    peer.process.send_signal(signal.SIGUSR2)
    watching.until_last_is(None)


def transport_of(name: str, endpoint: str = LOOPBACK) -> tuple[ZmqTransport, PeerAddress]:
    keys = KeyPair.generate()
    watcher = PeerAddress(
        name="watcher", endpoint="tcp://127.0.0.1:9", public_key=WATCHER.public_key
    )
    transport = ZmqTransport(name=name, bind=endpoint, keys=keys, peers=[watcher])
    address = PeerAddress(name=name, endpoint=transport.endpoint, public_key=keys.public_key)
    return transport, address


def test_of_many_peers_the_one_that_leaves_is_named_and_its_successor_is_met(
    watching: Watching,
) -> None:
    transports = {name: transport_of(name) for name in ("a", "b", "c")}
    watching.follow(*(address for _, address in transports.values()))
    watching.meets("a", "b", "c")
    transports["b"][0].close()
    watching.until_last_is(Loss.ENDED, of="b")
    assert Loss.ENDED not in {one.loss for one in watching.seen if one.peer != "b"}
    successor, moved = transport_of("b")
    watching.follow(transports["a"][1], moved, transports["c"][1])
    watching.until_last_is(None, of="b")
    watching.follow()
    for transport in (transports["a"][0], transports["c"][0], successor):
        transport.close()


@pytest.fixture
def relays() -> Iterator[Callable[[int], Relay]]:
    laid: list[Relay] = []

    def lay(port: int) -> Relay:
        laid.append(Relay(port))
        return laid[-1]

    yield lay
    for relay in laid:
        relay.close()


def test_a_broken_connection_is_no_death_and_a_death_behind_a_relay_is_seen(
    watching: Watching, relays: Callable[[int], Relay]
) -> None:
    transport, address = transport_of("peer")
    relay = relays(int(address.endpoint.rpartition(":")[2]))
    watching.follow(address.model_copy(update={"endpoint": f"tcp://127.0.0.1:{relay.port}"}))
    watching.meets("peer")
    relay.break_all()
    deadline_s = time.monotonic() + PATIENCE_S
    while relay.answered_bytes < 2000:  # a handshake, and beats again
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    transport.close()
    watching.until_last_is(Loss.ENDED)


def test_a_death_is_seen_although_the_port_first_answered_to_nobody(
    watching: Watching, relays: Callable[[int], Relay]
) -> None:
    transport, address = transport_of("peer")
    relay = relays(int(address.endpoint.rpartition(":")[2]))
    watching.follow(address.model_copy(update={"endpoint": f"tcp://127.0.0.1:{relay.port}"}))
    watching.meets("peer")
    relay.is_deaf = True
    relay.break_all()
    watching.until_last_is(Loss.SILENT)
    deadline_s = time.monotonic() + PATIENCE_S
    while relay.held < 3:  # ZeroMQ's own, whose handshake goes on and on, and two port checks
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    relay.refuse()
    watching.until_last_is(Loss.ENDED)
    transport.close()


class SlowToSay(zmq.Socket[bytes]):
    """`connect` comes back long after the connection stands, as on a busy machine it may."""

    def connect(self, addr: str) -> Any:
        connected = super().connect(addr)
        time.sleep(0.3)
        return connected


class SlowContext(zmq.Context[SlowToSay]):
    _socket_class = SlowToSay


@pytest.mark.processes
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_death_is_seen_although_the_connection_stood_before_anybody_looked(
    start: Callable[[], PeerProcess], host: str
) -> None:
    peer = start()
    port = peer.address.endpoint.rpartition(":")[2]
    with SlowContext() as context:
        watch = HeartbeatMonitor(
            socket_for=lambda address: sending_socket(
                context, address, keys=WATCHER, security=DataSecurity.CURVE, most_waiting=16
            )
        )
        watching = Watching(watch)
        watching.follow(peer.address.model_copy(update={"endpoint": f"tcp://{host}:{port}"}))
        watching.meets("peer")
        peer.process.kill()
        watching.until_last_is(Loss.ENDED)
        watch.close()


def test_a_socket_to_beat_on_never_stops_reading_for_want_of_room() -> None:
    """libzmq aborts the process when heartbeats close a connection whose reading has stopped."""
    transport, address = transport_of("peer")
    transport.close()
    with zmq.Context() as context:
        dealer = sending_socket(
            context, address, keys=WATCHER, security=DataSecurity.CURVE, most_waiting=2
        )
        assert (dealer.sndhwm, dealer.heartbeat_ivl) == (2, HEARTBEAT_INTERVAL_MS)
        assert dealer.rcvhwm > 1000
        dealer.close(linger=0)
        listener = receiving_socket(
            context, bind=LOOPBACK, keys=WATCHER, security=DataSecurity.CURVE, most_waiting=2
        )
        assert listener.heartbeat_ivl == 0
        listener.close(linger=0)


@pytest.mark.processes
def test_whoever_is_a_coordinator_among_the_peers_is_watched_wherever_it_moves(
    start: Callable[[], PeerProcess],
) -> None:
    stage = ZmqTransport(name="watcher", bind=LOOPBACK, keys=WATCHER)
    try:
        watching = Watching(stage.watch(generation=1))
        peers = [start(), start()]
        for peer in peers:
            peer.address = peer.address.model_copy(update={"name": "coordinator:2"})
        stage.set_peers([peers[0].address])
        watching.meets("coordinator:2")
        peers[0].process.kill()
        watching.until_last_is(Loss.ENDED, of="coordinator:2")
        stage.set_peers([peers[1].address])
        watching.until_last_is(None, of="coordinator:2")
    finally:
        stage.close()


def test_a_coordinator_that_waits_for_messages_is_not_taken_to_hang() -> None:
    """Nothing may be said to it for hours: that is no turn of its own."""
    keys = KeyPair.generate()
    watcher = PeerAddress(
        name="watcher", endpoint="tcp://127.0.0.1:9", public_key=WATCHER.public_key
    )

    async def wait_idle() -> float:
        transport = AsyncZmqTransport(
            name="coordinator", bind=LOOPBACK, keys=keys, peers=(watcher,)
        )
        receiving = asyncio.create_task(transport.receive())
        await asyncio.sleep(0)  # until the task waits
        turn_s = transport._lanes.turns.so_far_s()
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)
        transport.close()
        return turn_s

    assert asyncio.run(wait_idle()) == 0.0
